"""Run the kernels of pitfalls.cu on an NVIDIA GPU: right or wrong, and how fast."""

import tempfile
from pathlib import Path
from statistics import median

import nvcc
import torch

HERE = Path(__file__).resolve().parent


def launch(name: str, *arguments: torch.Tensor | int) -> None:
    """Call launch_`name` on the current stream."""
    stream = torch.cuda.current_stream().cuda_stream
    launchers[name](*arguments, stream=stream)


def milliseconds(name: str, *arguments: torch.Tensor | int) -> float:
    """Median of 20 launches, by events on the stream."""
    times = []
    for _ in range(23):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        launch(name, *arguments)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return median(times[3:])


def loops() -> None:
    """Every row doubled, by the loop that waits and by the loop that strides."""
    print("twice the input            columns  wrong elements        ms")
    for columns in (1024, 4096):
        rows = 2**26 // columns
        input = torch.randn(rows, columns, device="cuda")
        for name in ("twice_serial", "twice_stride"):
            output = torch.zeros_like(input)
            launch(name, input, output, rows, columns)
            wrong = (output != 2 * input).sum().item()
            time = milliseconds(name, input, output, rows, columns)
            print(f"{name:24}{columns:10}{wrong:16}{time:10.3f}")


def sums() -> None:
    """2^24 ones added up: every partial sum is exact in fp32."""
    count, blocks, runs = 2**24, 1024, 20
    ones = torch.ones(count, device="cuda")
    partial = torch.empty(blocks, device="cuda")
    total = torch.empty(1, device="cuda")
    print("\nsum of 2^24 ones   wrong runs of 20   one of the sums        ms")
    forms = {
        "sum_race": (ones, count, total, blocks),
        "sum_volatile": (ones, count, total, blocks),
        "sum_no_barriers": (ones, count, partial, total, blocks),
        "sum_barriers": (ones, count, partial, total, blocks),
        "sum_atomic": (ones, count, total, blocks),
    }
    for name, arguments in forms.items():
        results = []
        for _ in range(runs):
            total.zero_()
            launch(name, *arguments)
            results.append(total.item())
        wrong = [result for result in results if result != count]
        example = wrong[0] if wrong else results[0]
        time = milliseconds(name, *arguments)
        print(f"{name:19}{len(wrong):16}{example:18.0f}{time:10.3f}")


def rows() -> None:
    """Row sums of 2^26 elements, 256 MiB: more than the L2 cache holds."""
    rows, columns = 2**16, 2**10
    input = torch.randn(rows, columns, device="cuda")
    output = torch.empty(rows, device="cuda")
    print("\nrow sums of 65536 x 1024   wrong rows        ms      GB/s")
    for name in ("row_sums_thread", "row_sums_int64", "row_sums_int32"):
        output.zero_()
        launch(name, input, rows, columns, columns, output)
        exact = input.double().sum(1)
        wrong = ((output - exact).abs() > 1e-3).sum().item()
        time = milliseconds(name, input, rows, columns, columns, output)
        speed = input.numel() * input.element_size() / time / 1e6
        print(f"{name:25}{wrong:12}{time:10.3f}{speed:10.0f}")


with tempfile.TemporaryDirectory() as folder:
    launchers = nvcc.launchers(nvcc.library(HERE / "pitfalls.cu", Path(folder)))
    print(torch.cuda.get_device_name())
    loops()
    sums()
    rows()

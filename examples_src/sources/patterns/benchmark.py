"""Tune a Triton kernel and benchmark it with Triton's own tools, on a GPU.

PYTHONPATH=benchmarks/gpu python3 examples_src/sources/patterns/benchmark.py

With the argument "first" it only makes the kernel's first call, and times that.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import clock
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice
from triton.testing import do_bench, do_bench_cudagraph

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block in (256, 1024, 4096, 16384)
    for warps in (2, 4, 8, 16)
]


def worth_timing(configs, arguments, **options):
    """Leave out blocks longer than the tensor, and few or many elements a thread."""
    longest = max(256, triton.next_power_of_2(arguments["count"]))
    sizes = [(config, config.kwargs["BLOCK"], config.num_warps) for config in configs]
    each = {config: block / warps / 32 for config, block, warps in sizes}
    return [c for c, block, _ in sizes if block <= longest and 4 <= each[c] <= 32]


@triton.autotune(
    CONFIGS, key=["bucket"], prune_configs_by={"early_config_prune": worth_timing}
)
@triton.heuristics({"EVEN": lambda found: found["count"] % found["BLOCK"] == 0})
@triton.jit
def gelu_kernel(input, output, count, bucket, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """GELU in its approximation by tanh. `bucket` is here for the tuner."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = None if EVEN else place < count
    x = tl.load(input + place, mask=inside).to(tl.float32)
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    y = 0.5 * x * (1 + libdevice.tanh(inner))
    tl.store(output + place, y.to(output.dtype.element_ty), mask=inside)


def gelu(input: Tensor) -> Tensor:
    """Launch with the config that the tuner chose for sizes like this one."""
    output, count = torch.empty_like(input), input.numel()
    grid = lambda config: (triton.cdiv(count, config["BLOCK"]),)  # noqa: E731
    gelu_kernel[grid](input, output, count, triton.next_power_of_2(count))
    return output


def eager(input: Tensor) -> Tensor:
    """The same in PyTorch."""
    return F.gelu(input, approximate="tanh")


# [report]
LINES = {"eager": eager, "compiled": torch.compile(eager, dynamic=False), "ours": gelu}


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["count"],
        x_vals=[2**power for power in (16, 20, 26)],
        line_arg="line",
        line_vals=list(LINES),
        line_names=list(LINES),
        ylabel="GB/s",
        plot_name="gelu",
        args={},
    )
)
def bandwidth(count, line):
    """Bytes read and written in a second, in 10^9."""
    x = torch.randn(count, device="cuda", dtype=torch.bfloat16)
    milliseconds = do_bench(lambda: LINES[line](x), return_mode="median")
    return 2 * x.nbytes / milliseconds / 1e6


# [/report]


def report() -> None:
    """Print what `bandwidth.run(print_data=True)` prints; that needs pandas."""
    benchmark = bandwidth.benchmarks
    print(f"{benchmark.plot_name}, bf16, {benchmark.ylabel}")
    print(f"{'count':>10}" + "".join(f"{name:>10}" for name in benchmark.line_names))
    for count in benchmark.x_vals:
        found = [bandwidth.fn(count, line) for line in benchmark.line_vals]
        print(f"{count:10}" + "".join(f"{value:10.0f}" for value in found))


def warm(call: Callable) -> float:
    """Milliseconds of a call between two events, with the cache as it was left."""
    for _ in range(20):
        call()
    pairs = []
    for _ in range(100):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in pairs)


def clocks() -> None:
    """Print microseconds of one kernel by four clocks."""
    CLOCKS = {
        "events": warm,
        "cudagraph": do_bench_cudagraph,
        "do_bench": lambda call: do_bench(call, return_mode="median"),
        "clock.py": lambda call: clock.medians({"": call})[""] / 1e3,
    }
    print(f"{'microseconds':>12}" + "".join(f"{name:>11}" for name in CLOCKS))
    for power in (16, 20, 26):
        x = torch.randn(2**power, device="cuda", dtype=torch.bfloat16)
        found = [1e3 * clock(lambda x=x: gelu(x)) for clock in CLOCKS.values()]
        print(f"{2**power:12}" + "".join(f"{value:11.1f}" for value in found))


def choices() -> None:
    """Check the kernel, and print how many configs were timed for each size."""
    print(f"{len(CONFIGS)} configs")
    for count in (1000, 1 << 20, (1 << 20) + 1):
        x = torch.randn(count, device="cuda")
        torch.testing.assert_close(gelu(x), eager(x), rtol=1e-5, atol=1e-6)
        config, timed = gelu_kernel.best_config, len(gelu_kernel.configs_timings)
        print(f"{count:8} elements: {timed:2} timed, chosen {config}")


def first_call() -> None:
    """Print the seconds of the first call in this process."""
    x = torch.randn(1 << 20, device="cuda")
    torch.cuda.synchronize()
    begin = time.perf_counter()
    gelu(x)
    torch.cuda.synchronize()
    print(f"{time.perf_counter() - begin:.2f} s")


def cached() -> None:
    """Print the seconds of the first call in three processes with one cache."""
    with tempfile.TemporaryDirectory() as folder:
        for name, keep in (("nothing cached", "1"), ("kernels", "0"), ("choice", "1")):
            variables = {"TRITON_CACHE_DIR": folder, "TRITON_CACHE_AUTOTUNING": keep}
            command = [sys.executable, __file__, "first"]
            done = subprocess.run(
                command, env=os.environ | variables, capture_output=True, text=True
            )
            print(f"{name:15} {done.stdout.strip() or done.stderr[-300:]}")


if __name__ == "__main__":
    if "first" in sys.argv:
        first_call()
        sys.exit()
    for part in (choices, report, clocks, cached):
        print(f"\n{part.__name__}")
        part()

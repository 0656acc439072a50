"""Time rms_norm beside eager PyTorch, on the CPU, in one run.

Rounds alternate between the two, so that a busy moment of the machine hits both.
"""

import itertools
import statistics
import sys

import torch
from torch.utils.benchmark import Timer

import opbook

SHAPES = [(512, 4096), (8192, 1024)]
DTYPES = [torch.float32, torch.bfloat16]
ROUNDS = 15
# The budget is "no slower"; two timings of one function differ by up to this much.
NOISE = 1.05


def medians(calls: list, threads: int, seconds: float = 0.05) -> list[float]:
    """Time the calls in turns; return the median of each in seconds."""
    timers = [
        Timer("call()", globals={"call": call}, num_threads=threads) for call in calls
    ]
    for timer in timers:
        timer.timeit(3)
    rounds = [
        [timer.blocked_autorange(min_run_time=seconds).median for timer in timers]
        for _ in range(ROUNDS)
    ]
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


def rms_norm(shape: tuple[int, int], dtype: torch.dtype, threads: int) -> list[float]:
    """Seconds of opbook and of eager for one shape and dtype, with a weight."""
    torch.manual_seed(0)
    input = torch.randn(shape).to(dtype)
    weight = torch.randn(shape[-1]).to(dtype)
    return medians(
        [
            lambda: opbook.rms_norm(input, weight),
            lambda: torch.nn.functional.rms_norm(input, (shape[-1],), weight),
        ],
        threads,
    )


def main() -> int:
    """Print the table; return 1 when a kernel is over its budget."""
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    header = f"{'operator':10} {'shape':>10} {'dtype':>9} {'threads':>8}"
    print(f"{header} {'opbook us':>10} {'eager us':>9} {'ratio':>6}  budget {NOISE}")
    over = 0
    cases = itertools.product(SHAPES, DTYPES, sorted({1, torch.get_num_threads()}))
    with torch.inference_mode():
        for shape, dtype, threads in cases:
            ours, eager = rms_norm(shape, dtype, threads)
            fits = ours <= eager * NOISE
            over += not fits
            size, kind = "x".join(map(str, shape)), str(dtype).removeprefix("torch.")
            row = f"{'rms_norm':10} {size:>10} {kind:>9} {threads:8}"
            times = f"{ours * 1e6:10.0f} {eager * 1e6:9.0f} {ours / eager:6.2f}"
            print(row, times, " pass" if fits else " FAIL", flush=True)
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())

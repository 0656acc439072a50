"""Asks a clock and ncu where the time of RMSNorm goes if there are few rows.

It also times one kernel that was loaded several times, each time to another place in
the GPU's memory.
"""

import ctypes
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import ncu
import nvcc
import speed
import torch

import opbook

ROWS, HIDDEN = (1, 16, 64), 4096
LAUNCHES = 5  # of each call under ncu
COPIES = 8  # of the kernel of the gradients
EPS = 1e-6
KERNELS = "spin_kernel|vectorized_elementwise_kernel|rms_norm_kernel"
TIME = "gpu__time_duration.sum"
# Warps that issue nothing, per instruction issued, by the reason. They add up to ALL.
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
ALL = "smsp__average_warp_latency_per_inst_issued.ratio"
WAITS = {
    "memory": ["long_scoreboard"],
    "code": ["no_instruction", "imc_miss"],  # and constants, the parameters among them
    "the sum": ["short_scoreboard", "barrier"],
}
METRICS = [TIME, ALL] + [STALLED.format(each) for why in WAITS.values() for each in why]


def calls(rows: int) -> dict[str, Callable]:
    """A kernel that does nothing, one that moves the same bytes, and RMSNorm."""
    x = torch.randn(rows, HIDDEN, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(HIDDEN, device="cuda", dtype=torch.bfloat16)
    return {
        "empty": partial(torch.cuda._sleep, 0),
        "neg": partial(torch.neg, x),
        "rms_norm": partial(opbook.rms_norm, x, weight),
    }


def launch() -> None:
    """What ncu watches: each call a few times."""
    for rows in ROWS:
        for call in calls(rows).values():
            for _ in range(LAUNCHES):
                call()
    torch.cuda.synchronize()


def share(why: list[str], counts: dict[str, float]) -> float:
    """The part of a warp's time that it waits for these reasons."""
    return sum(counts[STALLED.format(each)] for each in why) / counts[ALL]


def cells(name: str, events: float, launches: list[dict[str, float]]) -> list[str]:
    """A line of the table: medians over the launches."""
    times = [events, median(counts[TIME] for counts in launches) / 1e3]
    cells = [f"{time:.1f}" for time in times]
    for why in WAITS.values():
        waited = median(share(why, counts) for counts in launches)
        cells.append("-" if name == "empty" else f"{waited:.0%}")
    return cells


def copies_of_a_kernel(folder: Path) -> dict[str, Callable]:
    """The gradients of one row, by the same kernel in several libraries."""
    built = nvcc.library(Path(__file__).with_suffix(".cu"), folder)
    options = {"device": "cuda", "dtype": torch.bfloat16}
    grad, x, weight, *results = (torch.randn(HIDDEN, **options) for _ in range(5))
    rrms = torch.rsqrt(x.float().square().mean().reshape(1) + EPS)
    pointers = [tensor.data_ptr() for tensor in (grad, x, weight, rrms, *results)]
    stream = torch.cuda.current_stream().cuda_stream
    leaves = [tensor.detach().requires_grad_() for tensor in (x, weight)]
    y = torch.nn.functional.rms_norm(leaves[0], (HIDDEN,), leaves[1], EPS)
    wanted = torch.autograd.grad(y, leaves, grad)
    found = {}
    for number in range(COPIES):
        copy = shutil.copy(built, folder / f"{number}.so")  # or it is loaded once
        launch = ctypes.CDLL(copy).launch
        launch.argtypes = [*[ctypes.c_void_p] * 6, ctypes.c_int, ctypes.c_void_p]
        launch.restype = ctypes.c_char_p

        def call(launch=launch, keep=(grad, x, weight, rrms)):  # as long as the call
            error = launch(*pointers, HIDDEN, stream)
            if error is not None:
                raise RuntimeError(error.decode())

        for result in results:
            result.fill_(torch.nan)
        call()
        torch.testing.assert_close(tuple(results), wanted, rtol=2**-6, atol=2**-6)
        found[f"copy {number}"] = call
    return found


def print_copies(flush: torch.Tensor) -> None:
    """The same code on the same data: what differs is where the code lies.

    The second line is of turns in reverse, so that another call comes before each.
    """
    with tempfile.TemporaryDirectory() as folder:
        copies = copies_of_a_kernel(Path(folder))
        reverse = dict(reversed(copies.items()))
        twice = [speed.medians(turns, flush) for turns in (copies, reverse)]
    print(f"\nevents, us: gradients of one row, one kernel loaded {COPIES} times")
    for times in twice:
        print(" ".join(f"{times[name]:6.2f}" for name in copies))


def main() -> None:
    """Print a line for each call, and one for each round of the copies."""
    speed.ROUNDS = 301
    flush = speed.flush_buffer()
    with torch.inference_mode():
        times = {rows: speed.medians(calls(rows), flush) for rows in ROWS}
    count = LAUNCHES * sum(map(len, times.values()))
    launches = iter(ncu.counted(__file__, KERNELS, METRICS, count))
    print(f"{speed.versions()}, rows of {HIDDEN}, cold cache")
    print(f"events: median of {speed.ROUNDS} times between two events")
    print(
        f"ncu --clock-control none: medians of {LAUNCHES} launches, the kernel's time"
    )
    print("and what part of it a warp waits, for what")
    heads = ["events, us", "ncu, us", *WAITS]
    print(f"{'rows':>4} {'':10}" + "".join(f"{head:>12}" for head in heads))
    for rows, medians in times.items():
        for name, events in medians.items():
            line = cells(name, events, [next(launches) for _ in range(LAUNCHES)])
            print(f"{rows:4} {name:10}" + "".join(f"{cell:>12}" for cell in line))
    print_copies(flush)


if __name__ == "__main__":
    launch() if sys.argv[1:] == ["launch"] else main()

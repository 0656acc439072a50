"""Asks a clock and ncu where the time of RMSNorm goes if there are few rows."""

import sys
from collections.abc import Callable

import ncu
import speed
import torch

import opbook

ROWS, HIDDEN = (1, 16, 64), 4096
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
        "empty": lambda: torch.cuda._sleep(0),
        "neg": lambda: torch.neg(x),
        "rms_norm": lambda: opbook.rms_norm(x, weight),
    }


def launch() -> None:
    """What ncu watches: each call once."""
    for rows in ROWS:
        for call in calls(rows).values():
            call()
    torch.cuda.synchronize()


def shares(counts: dict[str, float]) -> list[float]:
    """The parts of a warp's time that it waits for each of WAITS."""
    return [
        sum(counts[STALLED.format(each)] for each in why) / counts[ALL]
        for why in WAITS.values()
    ]


def main() -> None:
    """Print a line for each call."""
    speed.ROUNDS = 301
    cache = torch.cuda.get_device_properties("cuda").L2_cache_size
    flush = torch.zeros(2 * cache, device="cuda")  # fp32: 8 times the L2 cache
    with torch.inference_mode():
        times = {rows: speed.medians(calls(rows), flush) for rows in ROWS}
    launches = iter(ncu.counted(__file__, KERNELS, METRICS, 3 * len(ROWS)))
    print(f"{speed.versions()}, rows of {HIDDEN}, cold cache")
    print("events: median between two events; ncu --clock-control none: the kernel's")
    print("time, and what part of it a warp waits, for what")
    heads = ["events, us", "ncu, us", *WAITS]
    print(f"{'rows':>4} {'':10}" + "".join(f"{head:>12}" for head in heads))
    for rows, medians in times.items():
        for name, median in medians.items():
            counts = next(launches)
            cells = [f"{median:.1f}", f"{counts[TIME] / 1e3:.1f}"]
            cells += [f"{share:.0%}" for share in shares(counts)]
            print(f"{rows:4} {name:10}" + "".join(f"{cell:>12}" for cell in cells))


if __name__ == "__main__":
    launch() if sys.argv[1:] == ["launch"] else main()

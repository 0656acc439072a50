"""Asks a clock and ncu where the time of RMSNorm goes if there are few rows.

It also asks what the clock adds: the same call, several times in a turn.
"""

import sys
from collections.abc import Callable
from functools import partial
from itertools import chain
from statistics import median, quantiles

import clock
import ncu
import norm
import torch

ROWS, HIDDEN = (1, 16, 64), 4096
LAUNCHES = 5  # of each call under ncu
PLACES = 8  # of the same call in a turn
TURNS = 301
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
        "rms_norm": partial(norm.rms_norm, x, weight),
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


def queued(call: Callable) -> list[float]:
    """Microseconds of one call at each place of a turn; nobody waits for one."""
    pairs = []
    for _ in range(PLACES):
        clock.flush()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        clock.results.append(call())
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    return [1e3 * start.elapsed_time(end) for start, end in pairs]


def waited_for(call: Callable) -> list[float]:
    """The same, if Python waits for each call before it launches the next."""
    return [clock.one_call(call) for _ in range(PLACES)]


def print_places() -> None:
    """The time of each place of a turn, if Python queues it, and if it waits."""
    call = calls(ROWS[1])["rms_norm"]
    turns = {queued: [], waited_for: []}
    for _ in range(clock.WARM_UP + TURNS):  # alternating: a busy moment hits both
        for one_turn, found in turns.items():
            found.append(one_turn(call))
    print(f"\nevents, us: rms_norm of {ROWS[1]} rows, at each place of a turn")
    places = "".join(f"{place:6}" for place in range(1, PLACES + 1))
    print(f"{'':12}{places}   95 % below")
    for one_turn, found in turns.items():
        times = list(zip(*found[clock.WARM_UP :], strict=True))
        medians = "".join(f"{median(each):6.2f}" for each in times)
        late = quantiles(list(chain(*times)), n=20)[-1]
        name = one_turn.__name__.replace("_", " ")
        print(f"{name:12}{medians}{late:13.2f}")


def main() -> None:
    """Print a line for each call, and one for each way to queue one call."""
    with torch.inference_mode():
        times = {rows: clock.medians(calls(rows), TURNS) for rows in ROWS}
    count = LAUNCHES * sum(map(len, times.values()))
    launches = iter(ncu.counted(__file__, KERNELS, METRICS, count))
    print(f"{clock.versions()}, rows of {HIDDEN}, cold cache")
    print(f"events: median of {TURNS} times between two events")
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
    with torch.inference_mode():
        print_places()


if __name__ == "__main__":
    launch() if sys.argv[1:] == ["launch"] else main()

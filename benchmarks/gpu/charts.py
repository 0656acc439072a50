"""Charts and tables of the pages on benchmarks: readable on white and on black."""

import importlib.util
import sys
from collections.abc import Callable
from html import escape
from operator import itemgetter

if importlib.util.find_spec("matplotlib") is None:
    print("skipped: needs matplotlib (pip install matplotlib)")
    sys.exit(77)

import matplotlib.pyplot as plt
import results as measured
import targets
from matplotlib.axes import Axes
from matplotlib.ticker import (
    LogLocator,
    NullFormatter,
    PercentFormatter,
    StrMethodFormatter,
)

GREY = "#808080"
STYLE = {  # colour and marker
    "opbook": ("#d9734e", "D"),
    "opbook.triton": ("#d9a24e", "D"),
    "eager": (GREY, "o"),
    "torch.compile": ("#5b8db8", "o"),
    "torch.compile max": ("#5b8db8", "s"),
    "Liger": ("#5a9e6f", "^"),
    "QuACK": ("#a070b8", "v"),
    "addmm_activation": ("#a070b8", "^"),
    "F.linear": (GREY, "|"),
    "product": (GREY, "|"),
    "copy": (GREY, "|"),
}
plt.rcParams |= {
    "font.size": 11,
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.titlecolor": GREY,
    "axes.titlesize": 11,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": GREY,
    "ytick.labelcolor": GREY,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
}


def panels(count: int = 1, *, rows: int) -> list[Axes]:
    """Axes one above the other, in a figure that a phone is wide enough for."""
    size = (6.4, count * (0.9 + 0.38 * rows) + 1.0)
    _, axes = plt.subplots(count, figsize=size, layout="constrained", squeeze=False)
    return list(axes.flat)


def dots(
    axis: Axes, values: dict, upto: dict | None = None, best: Callable = min
) -> None:
    """A row for each case and in it a dot for each contender, the best one in a ring.

    Args:
        axis: Where to draw.
        values: By contender, then by case: a shape, for instance.
        upto: Like ``values``; a line leads from the dot to here.
        best: Chooses the value for the ring: ``max`` or ``min``.
    """
    cases = list(dict.fromkeys(case for found in values.values() for case in found))
    racing = [found for name, found in values.items() if name not in measured.LIMITS]
    winners = {case: best(f[case] for f in racing if case in f) for case in cases}
    step = 0.7 / max(len(values) - 1, 1)
    for place, (name, found) in enumerate(values.items()):
        color, marker = STYLE[name]
        heights = [cases.index(case) - 0.35 + place * step for case in found]
        numbers = list(found.values())
        axis.plot(numbers, heights, marker, color=color, markersize=6, label=name)
        for case, height in zip(found, heights, strict=True):
            if name not in measured.LIMITS and found[case] == winners[case]:
                ring = {"color": color, "markersize": 12, "fillstyle": "none"}
                axis.plot(found[case], height, "o", **ring)
        if upto:
            ends = [upto[name][case] for case in found]
            axis.hlines(heights, numbers, ends, color=color, linewidth=1.5)
    for border in range(1, len(cases)):
        axis.axhline(border - 0.5, color=GREY, linewidth=0.4, alpha=0.5)
    axis.set_yticks(range(len(cases)), cases)
    axis.set_ylim(len(cases) - 0.5, -0.5)
    axis.set_frame_on(False)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x", color=GREY, linewidth=0.4, alpha=0.5)


def shares(values: dict, limit: str) -> None:
    """Show dots on a scale whose 100 % is a limit of the machine."""
    if not values:
        print("These results are from before the benchmark took such times.")
        return
    [axis] = panels(rows=len(values["opbook"]))
    dots(axis, values, best=max)
    axis.axvline(1, color=GREY, linewidth=2)
    axis.set_xlim(right=1.1)
    axis.xaxis.set_major_formatter(PercentFormatter(1))
    axis.set_xlabel(f"100 % is {limit}; a ring is around the fastest contender")
    show(axis)


def times(medians: dict, slowest: dict) -> None:
    """Show dots of medians, with lines to the 95th percentile, in microseconds."""
    [axis] = panels(rows=len(medians["opbook"]))
    dots(axis, medians, upto=slowest)
    axis.set(xscale="log", xlabel="µs; a ring is around the fastest contender")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    show(axis)


def show(axis: Axes) -> None:
    """Name the contenders of an axis below its figure, and show that."""
    handles, names = axis.get_legend_handles_labels()
    axis.figure.legend(handles, names, loc="outside lower center", ncols=3)
    plt.show()


class Table:
    """A table that a page shows as HTML."""

    def __init__(self, head: list[str], rows: list[list[str]]) -> None:
        self.head, self.rows = head, rows

    def __repr__(self) -> str:
        return "\n".join(" | ".join(row) for row in [self.head, *self.rows])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(cell)}</th>" for cell in self.head)
        lines = []
        for row in self.rows:
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
            lines.append(f"<tr>{cells}</tr>")
        body = "".join(lines)
        inside = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        table = f'<table class="table">{inside}</table>'
        return f'<div class="pst-scrollable-table-container">{table}</div>'


def verdict(reached: bool, ahead: bool = True) -> str:
    """Whether the target is met, and whether a peer is ahead by more than noise."""
    return ("met" if reached else "missed") + ("" if ahead else ", a peer is ahead")


def share_table(results: measured.Results, task: str) -> Table:
    """Targets of a task, what was measured, and the best peer of the same run."""
    lines = []
    for shape, goal in targets.SHARES[task].items():
        ours, peer = _ours_and_peer(results, task, shape)
        share = results.share(ours)
        met = verdict(share >= goal, is_ahead(ours, peer))
        best = f"{results.share(peer):.1%}, {peer['contender']}"
        lines.append(
            [measured.shape_of(ours), f"{goal:.0%}", f"{share:.1%}", best, met]
        )
    return Table(["rows × hidden", "target", "opbook", "best peer", "verdict"], lines)


def time_table(results: measured.Results, shapes: list, task: str) -> Table:
    """Microseconds of a cold call, beside the best peer's and a copy's."""
    lines = []
    for shape in shapes:
        ours, peer = _ours_and_peer(results, task, shape)
        copy = results.row("copy", task=task, shape=shape)
        rows = ours, peer, copy
        our_time, its, copied = (f"{row['median']:.1f} µs" for row in rows)
        best = f"{its}, {peer['contender']}"
        lines.append([measured.shape_of(ours), our_time, best, copied])
    return Table([f"{task}: rows × hidden", "opbook", "best peer", "copy"], lines)


def ratio_table(results: measured.Results) -> Table:
    """Targets of ``linear_gelu``: its time over that of another contender."""
    lines = []
    for form, others in targets.RATIOS.items():
        for dtype in results.data["products"]:
            case = {"task": "forward", "form": form, "dtype": dtype}
            ours = results.row("opbook", **case)["median"]
            for other, target in others.items():
                ratio = ours / results.row(other, **case)["median"]
                found = verdict(ratio <= target)
                line = [form, dtype, other, f"{target:.2f}", f"{ratio:.3f}", found]
                lines.append(line)
    return Table(["form", "dtype", "against", "at most", "measured", "verdict"], lines)


def error_table(rows: list[measured.Row]) -> Table:
    """The largest error of each contender, and whether that is still right."""
    worst: dict[str, float] = {}
    for row in rows:
        if row["error"] is not None:
            name = row["contender"]
            worst[name] = max(worst.get(name, 0), row["error"])
    wrong = {row["contender"] for row in rows if row["wrong"]}
    lines = [
        [name, f"{error:.2f}", "wrong" if name in wrong else "right"]
        for name, error in worst.items()
    ]
    return Table(["contender", "largest error", "verdict"], lines)


CLOCKS = {"clean": "median", "dirty": "dirty median"}  # where a row has their times


def standings(results: measured.Results, *tasks: str) -> list[tuple]:
    """Each case by each clock: ratio to the best peer, clock, our row, the peer's."""
    found = []
    for ours in results.where(contender="opbook"):
        if ours["task"] not in tasks:
            continue
        case = {name: ours[name] for name in ("task", "shape", "dtype")}
        case |= {"form": ours["form"]} if "form" in ours else {}
        for clock, time in CLOCKS.items():
            if time in ours:
                peer = measured.fastest_peer(results.where(**case), time)
                found.append((ours[time] / peer[time], clock, ours, peer))
    return sorted(found, key=itemgetter(0), reverse=True)


def summary(results: measured.Results, *tasks: str) -> str:
    """How many cases are within the noise of the best peer or ahead, by each clock."""
    lines, noise = [], targets.NOISE - 1
    found = standings(results, *tasks)
    for clock in CLOCKS:
        ratios = [ratio for ratio, of, *_ in found if of == clock]
        if ratios:
            good = sum(ratio <= targets.NOISE for ratio in ratios)
            lines.append(
                f"{clock} clock: {good} of {len(ratios)} cases ahead or within "
                f"{noise:.0%}\n  times of opbook over the best peer's: "
                f"{ratios[-1]:.2f} to {ratios[0]:.2f}"
            )
    return "\n".join(lines)


def behind_table(results: measured.Results, *tasks: str) -> Table:
    """The cases in which a peer is ahead by more than the noise, the worst first."""
    lines = []
    for ratio, clock, ours, peer in standings(results, *tasks):
        if ratio > targets.NOISE:
            our_time, its = (f"{row[CLOCKS[clock]]:.1f} µs" for row in (ours, peer))
            case = [ours["task"], measured.shape_of(ours), clock, our_time]
            lines.append([*case, peer["contender"], its, f"{ratio:.2f}"])
    head = ["task", "shape", "clock", "opbook", "best peer", "its time", "ratio"]
    return Table(head, lines or [["none", *[""] * 6]])


def _ours_and_peer(results, task, shape) -> tuple[measured.Row, measured.Row]:
    case = {"task": task, "shape": list(shape)}
    ours = results.row("opbook", **case)
    return ours, measured.fastest_peer(results.where(**case))


def is_ahead(ours: measured.Row, peer: measured.Row) -> bool:
    return ours["median"] <= peer["median"] * targets.NOISE

"""Time RMSNorm on a GPU: forward, backward, in place, and after an addition.

    python3 benchmarks/gpu/rms_norm.py [--quick] [--task TASK] [--rounds N] [--seed N]

Each time stands beside a copy in the same turns. Kernels are tuned on chosen shapes, so
forward and backward are judged on shapes drawn at random too, others in each run; the
seed is kept with the results. ``--quick`` takes one small shape and runs without a GPU.
"""

import argparse
import os
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import get_context

import clock
import contenders
import torch
import torch._functorch.config
from report import Report
from torch import Tensor
from torch._inductor import config as inductor

DTYPE = torch.bfloat16
LARGE = [
    (262144, 128),  # the heads of a model that normalizes queries and keys
    (32768, 1024),
    (32768, 4096),
    (16384, 5120),
    (8192, 8192),
    (4096, 16384),
    (2048, 32768),
    (2048, 65536),
]
SMALL = [(1, 4096), (16, 4096), (64, 4096)]
FUSED = [(262144, 128), (32768, 1024), (32768, 4096), (4096, 16384)]
DRAWN = {"forward": 12, "backward": 5}  # how many shapes
MOST = 2**28  # elements of one
CHUNK = 2**24  # elements that the fp64 reference works on at a time


class Case:
    """The tensors of one shape."""

    def __init__(self, shape: tuple[int, int]) -> None:
        torch.manual_seed(0)
        options = {"device": clock.DEVICE, "dtype": DTYPE}
        self.x, self.g = torch.randn(shape, **options), torch.randn(shape, **options)
        self.w = torch.randn(shape[1], **options)
        self.rows = torch.linspace(0, shape[0] - 1, min(shape[0], 128)).long()


def normalize(x: Tensor, w: Tensor) -> Tensor:
    """RMSNorm in the formula's own terms, for fp64."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + contenders.EPS) * w


# A task makes a call of a function, and knows what the call has to return and how many
# bytes it moves at least.


class Forward:
    table = contenders.RMS_NORM

    @staticmethod
    def make(case: Case, function: Callable) -> clock.Call:
        return partial(function, case.x, case.w)

    @staticmethod
    def reference(case: Case) -> list:
        return [
            (case.rows, normalize(case.x[case.rows].double(), case.w.double())),
        ]

    @staticmethod
    def bytes(case: Case) -> int:
        return 2 * case.x.nbytes + case.w.nbytes


class Backward:
    """Both gradients. The forward ran before, and its graph is kept."""

    table = contenders.RMS_NORM

    @staticmethod
    def make(case: Case, function: Callable) -> clock.Call:
        with torch.enable_grad():
            x, w = case.x.detach().requires_grad_(), case.w.detach().requires_grad_()
            y = function(x, w)
        return partial(torch.autograd.grad, y, (x, w), case.g, retain_graph=True)

    @staticmethod
    def reference(case: Case) -> list:
        def gradients(x, g):
            x, w = x.double().requires_grad_(), case.w.double().requires_grad_()
            with torch.enable_grad():
                return torch.autograd.grad(normalize(x, w), (x, w), g.double())

        rows = max(1, CHUNK // case.x.shape[1])
        chunks = zip(case.x.split(rows), case.g.split(rows), strict=True)
        weight = sum(gradients(x, g)[1] for x, g in chunks)
        input = gradients(case.x[case.rows], case.g[case.rows])[0]
        return [(case.rows, input), (None, weight)]

    @staticmethod
    def bytes(case: Case) -> int:
        rrms = 4 * case.x.shape[0]
        return 3 * case.x.nbytes + 2 * case.w.nbytes + rrms


class InPlace:
    table = contenders.IN_PLACE

    @staticmethod
    def make(case: Case, function: Callable) -> clock.Call:
        # A weight of ones and minus ones: any other grows from call to call.
        return partial(function, case.x.clone(), case.w.sign())

    @staticmethod
    def reference(case: Case) -> list:
        x, w = case.x[case.rows].double(), case.w.sign().double()
        return [(case.rows, normalize(x, w))]

    bytes = Forward.bytes


class Add:
    """The sum of two tensors and its RMSNorm: two inputs, two outputs."""

    table = contenders.ADD

    @staticmethod
    def make(case: Case, function: Callable) -> clock.Call:
        return partial(function, case.x, case.g, case.w)

    @staticmethod
    def reference(case: Case) -> list:
        total = case.x[case.rows].double() + case.g[case.rows].double()
        rows = case.rows
        return [(rows, normalize(total, case.w.double())), (rows, total)]

    @staticmethod
    def bytes(case: Case) -> int:
        return 4 * case.x.nbytes + case.w.nbytes


TASKS = {"forward": Forward, "backward": Backward, "in place": InPlace, "add": Add}


def drawn(lot: random.Random, count: int) -> list[tuple[int, int]]:
    """Up to a million rows of 64 to 65536 elements; one row in four is not aligned."""
    shapes = []
    while len(shapes) < count:
        rows, hidden = (round(2 ** lot.uniform(*ends)) for ends in ((0, 20), (6, 16)))
        step = lot.choice((64, 64, 8, 1))
        hidden = hidden // step * step
        if rows * hidden <= MOST:
            shapes.append((rows, hidden))
    return shapes


def compile_all(cases: list[tuple[str, tuple[int, int]]]) -> None:
    """Call everyone once for each case, in processes side by side."""
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        list(pool.map(call_once, *zip(*cases, strict=True)))


def call_once(name: str, shape: tuple[int, int]) -> None:
    """Call everyone who takes part in a task.

    It leaves kernels on disk, but no choice among them: others keep the GPU busy.
    """
    prepare()
    torch._dynamo.reset()
    inductor.compile_threads = 1
    inductor.fx_graph_cache = inductor.autotune_local_cache = False
    torch._functorch.config.enable_autograd_cache = False
    task, case = TASKS[name], Case(shape)
    with torch.no_grad():
        for get in task.table.values():
            with suppress(Exception):  # the measurement says who fails, and how
                task.make(case, get())()


def prepare() -> None:
    """What each process needs."""
    contenders.quiet()
    # Each gradient is taken many times from one graph, which must keep its tensors.
    torch._functorch.config.donated_buffer = False


def measure(report: Report, name: str, shape, rounds: int, kind: str = "") -> None:
    """Measure one task for one shape; for a small one its launch and a graph too."""
    torch._dynamo.reset()
    task, case = TASKS[name], Case(shape)
    about = {"task": kind + name, "shape": list(shape), "dtype": "bfloat16"}
    make = partial(task.make, case)
    calls, errors = report.prepare(task.table, make, task.reference(case), **about)
    everyone = calls | {"copy": case.x.clone}
    times = clock.take_turns(everyone, rounds)
    for contender, found in times.items():
        moved = 2 * case.x.nbytes if contender == "copy" else task.bytes(case)
        found["bytes"] = moved
        if shape in SMALL:
            found["launch"] = clock.eager_time(everyone[contender])
            found["graph"] = None
            if clock.GPU and contender in calls:
                found["graph"] = in_a_graph(report, task, shape, contender, about)
    report.add(times, errors, **about)


def in_a_graph(report: Report, task, shape, contender: str, about: dict):
    """Time the calls of a CUDA graph; None where they cannot be captured."""
    function = task.table[contender]()
    try:
        return clock.graph_time(lambda: task.make(Case(shape), function))
    except Exception as problem:  # as in Report.prepare
        report.leave_out(problem, **about, contender=f"{contender} in a graph")
        torch.cuda.synchronize()
        return None


def main() -> None:
    """Measure everything, print it, and save it for the recorder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one small shape")
    parser.add_argument("--task", action="append", choices=TASKS, help="this only")
    # Times scatter by a few percent: the median of so many is known to a third of one.
    parser.add_argument("--rounds", type=int, default=151, help="default: %(default)s")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().getrandbits(31)
    )
    arguments = parser.parse_args()
    if arguments.rounds < 2:  # the 95th percentile is of several
        parser.error(f"--rounds must be at least 2, but got {arguments.rounds}")
    shapes = dict.fromkeys(("forward", "backward"), LARGE + SMALL)
    shapes |= dict.fromkeys(("in place", "add"), FUSED)
    if arguments.quick:
        shapes = dict.fromkeys(TASKS, SMALL[1:2])
    rounds = 7 if arguments.quick else arguments.rounds
    prepare()
    report = Report("RMSNorm")
    lot = random.Random(arguments.seed)
    print(f"seed of the drawn shapes: {arguments.seed}")
    judged = {task: drawn(lot, 0 if arguments.quick else DRAWN[task]) for task in DRAWN}
    tasks = arguments.task or TASKS
    if clock.GPU and not arguments.quick:
        compile_all([(t, s) for t in tasks for s in shapes[t] + judged.get(t, [])])
        print(f"compiled [{report.seconds():.0f} s]", flush=True)
    with torch.no_grad():
        for task in tasks:
            for shape in shapes[task]:
                measure(report, task, shape, rounds)
            for shape in judged.get(task, ()):
                measure(report, task, shape, rounds // 2, "drawn ")
    copies = [row for row in report.rows if row["contender"] == "copy"]
    speeds = [row["bytes"] / row["median"] for row in copies]  # MB in a second
    print(f"fastest copy {max(speeds) / 1e3:.0f} GB/s")
    print_shares(report.rows, max(speeds))
    report.save(copy=max(speeds), seed=arguments.seed)


def print_shares(rows: list[dict], copy: float) -> None:
    """A line for each case: every contender's share of the fastest copy's bandwidth."""
    lines: dict[str, list[str]] = {}
    for row in rows:
        if tuple(row["shape"]) in LARGE:
            share = row["bytes"] / row["median"] / copy
            case = f"{row['task']} {row['shape']}"
            lines.setdefault(case, []).append(f"{row['contender']} {share:.1%}")
    for case, shares in lines.items():
        print(f"{case}: {', '.join(shares)}")


if __name__ == "__main__":
    main()

"""Time a linear layer with GELU on a GPU, forward and backward.

    python3 benchmarks/gpu/linear_gelu.py [--quick] [--seed N]

Each time stands beside the matrix product alone, of the same run. Shapes drawn at
random, others in each run, are compared with eager's two calls and with ATen's fused
call. ``--quick`` takes a small shape and runs without a GPU too.
"""

import argparse
import random
from collections.abc import Callable
from functools import partial

import clock
import contenders
import torch
import torch._functorch.config
import torch.nn.functional as F
from report import Report
from torch import Tensor

SHAPE = (32768, 4096, 4096)  # rows, inputs, outputs
QUICK = (64, 128, 96)
DRAWN = 30  # shapes
MOST = 2**39  # multiplications of one
CHUNK = 4096  # rows that the fp64 reference works on at a time
FORMS = ("tanh", "none")


class Case:
    """The tensors of one dtype; as small as a trained layer's."""

    def __init__(self, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        rows, inputs, outputs = shape
        options = {"device": clock.DEVICE, "dtype": dtype}
        self.x = torch.randn(rows, inputs, **options)
        self.w = torch.randn(outputs, inputs, **options) / inputs**0.5
        self.b = torch.randn(outputs, **options)
        self.g = torch.randn(rows, outputs, **options)
        self.rows = torch.linspace(0, rows - 1, min(rows, 128)).long()

    def leaves(self) -> list[Tensor]:
        return [t.detach().requires_grad_() for t in (self.x, self.w, self.b)]

    def wide(self, rows) -> list[Tensor]:
        return [t.double() for t in (self.x[rows], self.w, self.b)]


def forward(case: Case, function: Callable) -> clock.Call:
    return partial(function, case.x, case.w, case.b)


def backward(case: Case, function: Callable) -> clock.Call:
    """All three gradients. The forward ran before, and its graph is kept."""
    leaves = case.leaves()
    with torch.enable_grad():
        y = function(*leaves)
    return partial(torch.autograd.grad, y, leaves, case.g, retain_graph=True)


def forward_reference(case: Case, form: str) -> list:
    return [(case.rows, F.gelu(F.linear(*case.wide(case.rows)), approximate=form))]


def backward_reference(case: Case, form: str) -> list:
    def gradients(rows):
        leaves = [t.requires_grad_() for t in case.wide(rows)]
        with torch.enable_grad():
            y = F.gelu(F.linear(*leaves), approximate=form)
            return torch.autograd.grad(y, leaves, case.g[rows].double())

    chunks = torch.arange(len(case.x)).split(CHUNK)
    _, weights, biases = zip(*map(gradients, chunks), strict=True)
    input = gradients(case.rows)[0]
    return [(case.rows, input), (None, sum(weights)), (None, sum(biases))]


def measure_forward(report: Report, case: Case, form: str) -> None:
    """Every contender for one form and dtype, the two products, in turns."""
    torch._dynamo.reset()
    modes = list(contenders.COMPILED)
    if case.x.dtype == torch.float16:
        modes = modes[:1]  # the search for the fastest product takes its time
    table = contenders.linear_gelu(form, modes)
    make, reference = partial(forward, case), forward_reference(case, form)
    about = {"task": "forward", "form": form, **describe(case)}
    calls, errors = report.prepare(table, make, reference, **about)
    calls["F.linear"] = partial(F.linear, case.x, case.w, case.b)
    calls["product"] = partial(F.linear, case.x, case.w)
    finish(report, calls, errors, products=1, **about)


def drawn(lot: random.Random, count: int) -> list[tuple[int, int, int]]:
    """Up to 65536 rows, and layers of 128 to 32768 inputs and outputs."""
    shapes = []
    while len(shapes) < count:
        rows = round(2 ** lot.uniform(0, 16))
        widths = (8 * round(2 ** lot.uniform(4, 12)) for _ in range(2))
        shape = (rows, *widths)
        if shape[0] * shape[1] * shape[2] <= MOST:
            shapes.append(shape)
    return shapes


def measure_drawn(report: Report, shape: tuple[int, int, int], form: str) -> None:
    """The operator beside eager's two calls and, in the tanh form, ATen's fused one."""
    case = Case(shape, torch.bfloat16)
    table = contenders.linear_gelu(form, ())
    for name in ("QuACK", "opbook.triton"):
        table.pop(name, None)  # these compile for each shape
    about = {"task": "drawn forward", "form": form, **describe(case)}
    make, reference = partial(forward, case), forward_reference(case, form)
    calls, errors = report.prepare(table, make, reference, **about)
    finish(report, calls, errors, products=1, **about)


def measure_backward(report: Report, case: Case, form: str) -> None:
    """Every contender for one form: the gradients of input, weight and bias."""
    torch._dynamo.reset()
    table = contenders.linear_gelu(form, ["torch.compile"])
    for name in ("addmm_activation", "QuACK"):
        table.pop(name, None)  # these have no gradient
    make, reference = partial(backward, case), backward_reference(case, form)
    about = {"task": "backward", "form": form, **describe(case)}
    calls, errors = report.prepare(table, make, reference, **about)
    finish(report, calls, errors, products=2, **about)


def describe(case: Case) -> dict:
    shape = [*case.x.shape, case.w.shape[0]]
    return {"shape": shape, "dtype": str(case.x.dtype).removeprefix("torch.")}


def finish(report, calls, errors, products: int, **about) -> None:
    """Time the calls and keep them; ``products`` is the least number of products."""
    rows, inputs, outputs = about["shape"]
    times = clock.take_turns(calls, rounds=7 if rows == QUICK[0] else 31)
    for found in times.values():
        found["operations"] = products * 2 * rows * inputs * outputs
    report.add(times, errors, **about)


def main() -> None:
    """Measure everything, print it, and save it for the recorder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small shape")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().getrandbits(31)
    )
    arguments = parser.parse_args()
    shape = QUICK if arguments.quick else SHAPE
    torch._functorch.config.donated_buffer = False  # see rms_norm.py
    contenders.quiet()
    report = Report("Linear and GELU")
    lot = random.Random(arguments.seed)
    print(f"seed of the drawn shapes: {arguments.seed}")
    with torch.no_grad():
        for dtype in (torch.bfloat16, torch.float16):
            case = Case(shape, dtype)
            for form in FORMS:
                measure_forward(report, case, form)
                if dtype == torch.bfloat16:
                    measure_backward(report, case, form)
        for judged in [] if arguments.quick else drawn(lot, DRAWN):
            for form in FORMS:
                measure_drawn(report, judged, form)
    rates = {}
    for row in report.rows:
        if row["contender"] == "product":
            rate = row["operations"] / row["median"]  # MFLOP in a second
            rates[row["dtype"]] = max(rate, rates.get(row["dtype"], 0))
    for dtype, rate in rates.items():
        print(f"{dtype}: fastest product {rate / 1e6:.0f} TFLOP/s")
    report.save(products=rates, seed=arguments.seed)


if __name__ == "__main__":
    main()

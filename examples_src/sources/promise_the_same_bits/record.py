"""Whose rows depend on the batch, and whose results on the run, on a GPU.

python3 examples_src/sources/promise_the_same_bits/record.py {pytorch,library}
"""

import sys
import warnings
from collections.abc import Callable

import bits
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor import config

SHAPES = [(4096, 1536), (256, 4096), (16, 100_000)]
NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
CASES = [(shape, dtype) for shape in SHAPES for dtype in NAMES]
CALLS = 50
Operators = dict[str, Callable[[Tensor], Tensor]]


def pytorch(x: Tensor) -> Operators:
    """PyTorch's operators, for rows like these."""
    matrix = torch.randn(512, x.shape[1], device=x.device, dtype=x.dtype)
    weight = torch.randn(x.shape[1], device=x.device, dtype=x.dtype)
    return {
        "matmul": lambda x: x @ matrix.t(),
        "linear": lambda x: F.linear(x, matrix, matrix[:, 0]),
        "softmax": lambda x: x.softmax(-1),
        "mean": lambda x: x.mean(-1),
        "rms_norm": lambda x: F.rms_norm(x, weight.shape, weight),
        "layer_norm": lambda x: F.layer_norm(x, weight.shape, weight),
        "silu": F.silu,
    }


def reductions(x: Tensor) -> Operators:
    """Those of PyTorch's operators for which Inductor generates code."""
    products = ("matmul", "linear")
    return {name: c for name, c in pytorch(x).items() if name not in products}


def library(x: Tensor) -> Operators:
    """The operators of this book's library."""
    import opbook
    import opbook.triton as in_triton

    matrix = torch.randn(512, x.shape[1], device=x.device, dtype=x.dtype)
    weight = torch.randn(x.shape[1], device=x.device, dtype=x.dtype)
    return {
        "rms_norm": lambda x: opbook.rms_norm(x, weight),
        "add_rms_norm": lambda x: opbook.add_rms_norm(x, x.clone(), weight)[0],
        "linear_gelu": lambda x: opbook.linear_gelu(x, matrix),
        "triton rms_norm": lambda x: in_triton.rms_norm(x, weight),
        "triton softmax": in_triton.softmax,
    }


def report(operators: Callable[[Tensor], Operators], compiled: bool = False) -> None:
    """Print for which rows the batch changes the bits: a line for each operator."""
    # To compile takes a second for each size of a batch: it does so for fewer cases.
    cases = CASES[3::2] if compiled else CASES
    names = ("x".join(map(str, shape)) + f" {NAMES[dtype]}" for shape, dtype in cases)
    print(" " * 16 + "".join(f"{name:>16}" for name in names))
    answers: dict[str, list[str]] = {}
    for shape, dtype in cases:
        torch.manual_seed(0)
        x = torch.randn(shape, device="cuda", dtype=dtype)
        for name, call in operators(x).items():
            torch._dynamo.reset()  # each size of a batch has a graph of its own
            call = torch.compile(call, dynamic=False) if compiled else call
            answers.setdefault(name, []).append(answer(call, x))
    for name, found in answers.items():
        print(f"{name:16}" + "".join(f"{text:>16}" for text in found), flush=True)


def answer(call: Callable[[Tensor], Tensor], x: Tensor) -> str:
    """Say whether the batch changes the bits, or the error that such rows cause."""
    try:
        return "changes" if bits.changes(call, x) else "same"
    except (RuntimeError, TypeError, ValueError) as error:
        return type(error).__name__


def count_results(call: Callable[[], Tensor]) -> int:
    """Call again and again, and count the different results."""
    seen: list[Tensor] = []
    for _ in range(CALLS):
        result = call()
        if not any(torch.equal(result, other) for other in seen):
            seen.append(result)
    return len(seen)


def runs() -> None:
    """Print how many results the same call has."""
    x = torch.randn(100_000, 256, device="cuda")
    total = torch.zeros(8, 256, device="cuda")
    index = torch.arange(len(x), device="cuda") % 8
    calls = {
        "column_sum": lambda: bits.column_sum(x),
        "index_add": lambda: total.index_add(0, index, x),
        "sum": lambda: x.sum(0),
        "matmul": lambda: x.t() @ x,
    }
    for name, call in calls.items():
        counts = []
        for wanted in (False, True):
            torch.use_deterministic_algorithms(wanted)
            counts.append(count_results(call))
        torch.use_deterministic_algorithms(False)
        print(f"  {name:12}{counts[0]:3} results; deterministic: {counts[1]}")


if __name__ == "__main__":
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    warnings.simplefilter("ignore")  # Inductor says how it splits a sum
    if sys.argv[1] == "library":
        print("does the batch change the bits of a row?")
        report(library)
        sys.exit()
    print(f"{CALLS} calls with the same input")
    runs()
    print("does the batch change the bits of a row? eager:")
    report(pytorch)
    print("compiled:")
    report(reductions, compiled=True)
    if hasattr(config, "batch_invariant"):
        print("compiled, with batch_invariant of torch._inductor.config:")
        with config.patch(batch_invariant=True):
            report(reductions, compiled=True)
    else:
        print("this version has no torch._inductor.config.batch_invariant")

"""Whose rows depend on the batch, and whose results on the run, on a GPU.

python3 examples_src/sources/promise_the_same_bits/record.py {pytorch,library}
"""

import contextlib
import sys
from collections.abc import Callable

import bits
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor import config

SHAPES = [(4096, 1536), (256, 4096), (16, 100_000)]
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


def report(operators: Callable[[Tensor], Operators]) -> None:
    """Print for which sizes of a batch the bits change."""
    for shape in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            torch.manual_seed(0)
            x = torch.randn(shape, device="cuda", dtype=dtype)
            for name, call in operators(x).items():
                try:
                    found = bits.changes(call, x)
                except (RuntimeError, TypeError, ValueError) as error:
                    found = str(error).splitlines()[0]
                size = "x".join(map(str, shape))
                print(f"  {size:>10} {str(dtype)[6:]:9}{name:16}{found}", flush=True)


def report_compiled() -> None:
    """The same for code of torch.compile, which needs a graph for each size."""
    for shape in SHAPES[1:]:
        torch.manual_seed(0)
        x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        operators = pytorch(x)
        for name in ("softmax", "mean", "rms_norm", "layer_norm"):
            torch._dynamo.reset()
            found = bits.changes(torch.compile(operators[name], dynamic=False), x)
            size = "x".join(map(str, shape))
            print(f"  {size:>10} bfloat16 {name:16}{found}", flush=True)


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
    if sys.argv[1] == "library":
        print("batches that change the bits of a row")
        report(library)
        sys.exit()
    print(f"{CALLS} calls with the same input")
    runs()
    print("batches that change the bits of a row, eager")
    report(pytorch)
    for invariant in (False, True):
        if invariant and not hasattr(config, "batch_invariant"):
            print("this version has no torch._inductor.config.batch_invariant")
            continue
        print(f"compiled, batch_invariant={invariant}")
        patch = (
            config.patch(batch_invariant=True)
            if invariant
            else contextlib.nullcontext()
        )
        with patch:
            report_compiled()

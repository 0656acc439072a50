"""What ``torch.neg`` does before and after the library is loaded, in one process.

Run by test_neg.py with the switches in the environment. Eager is asked first; then
``import opbook`` may replace its kernel. Prints faults by check, and logged calls.
"""

import json
import os
import random
import sys
import tempfile
from collections.abc import Callable

import torch
from torch.torch_version import TorchVersion

from eager import outcome
from layouts import layouts

torch.manual_seed(0)
DEVICE = sys.argv[1]
DTYPES = (
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex32,
    torch.complex64,
    torch.complex128,
)
# Before 2.13 an error loses its words on its way through the C interface.
KEEPS_WORDS = TorchVersion(torch.__version__) >= (2, 13)
REFUSED = (torch.bool, torch.uint16, torch.uint64, torch.float8_e4m3fn)


def of_dtype(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert a tensor and keep its layout, gaps and offset included."""
    values = x.as_strided((x.untyped_storage().nbytes() // 4,), (1,), 0) * 50
    if dtype.is_complex:
        values = torch.complex(values, values.flip(0))
    elif dtype == torch.uint8:
        values = values.abs()
    return values.to(dtype).as_strided(x.shape, x.stride(), x.storage_offset())


def inputs() -> dict[str, torch.Tensor]:
    found = {}
    for name, x in layouts(DEVICE).items():
        for dtype in DTYPES:
            found[f"{name} {dtype}"] = of_dtype(x, dtype)
    for shape in [(), (1,), (0,), (255,), (3, 0, 2), (70000,), (1, 3, 4, 4)]:
        found[f"shape {shape}"] = torch.randn(shape, device=DEVICE)
    odd = found["shape (255,)"]
    found["batch of one, channels last"] = found["shape (1, 3, 4, 4)"].to(
        memory_format=torch.channels_last
    )
    for start, dtype in enumerate(DTYPES, 1):
        found[f"offset {start} {dtype}"] = of_dtype(odd, dtype)[start:]
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        special = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-45, 1e30]
        found[f"special {dtype}"] = torch.tensor(special, device=DEVICE).to(dtype)
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        ends = [torch.iinfo(dtype).min, torch.iinfo(dtype).max, 0, 1]
        found[f"ends {dtype}"] = torch.tensor(ends, device=DEVICE, dtype=dtype)
    chance = random.Random(0)
    memory = torch.randn(5000, device=DEVICE)
    for _ in range(400):
        sizes = [chance.choice([0, 1, 2, 2, 3, 4]) for _ in range(chance.randint(1, 4))]
        steps, stride = [0] * len(sizes), 1
        for place in chance.sample(range(len(sizes)), len(sizes)):
            steps[place] = stride * chance.choice([0, 1, 1, 1, 1])
            stride *= max(sizes[place], 1) * chance.choice([1, 1, 1, 2])
        found[f"{sizes} by {steps}"] = memory.as_strided(sizes, steps)
    return found


def views() -> dict[str, torch.Tensor]:
    z = torch.randn(4, device=DEVICE, dtype=torch.complex64)
    x = torch.randn(4, device=DEVICE)
    return {
        "conj": z.conj(),
        "neg view": torch._neg_view(x),
        "both": torch._neg_view(z.conj()),
        "imaginary part of conj": z.conj().imag,
    }


def refused() -> dict[str, object]:
    ones = torch.ones(2, 3, dtype=torch.uint8, device=DEVICE)
    made = {str(dtype): ones.to(dtype) for dtype in REFUSED}
    return made | {"list": [1.0], "none": None}


def same(actual, expected) -> bool:
    """To the sign of zero, with strides and views, and for errors their text.

    The sign of NaN is left open, by IEEE 754 and between eager's CPU and CUDA kernels.
    """
    if isinstance(expected, Exception):
        kind = TypeError if isinstance(expected, TypeError) else RuntimeError
        words = first_line(expected)
        kept = KEEPS_WORDS or "bool" in words or kind is TypeError
        return isinstance(actual, kind) and (first_line(actual) == words or not kept)
    if isinstance(actual, Exception):
        return False
    flags = [(t.is_conj(), t.is_neg(), t.stride(), t.dtype) for t in (actual, expected)]
    if flags[0] != flags[1]:
        return False
    actual, expected = actual.cpu(), expected.cpu()
    if actual.dtype == torch.complex32:
        actual, expected = torch.view_as_real(actual), torch.view_as_real(expected)
    close = torch.allclose(actual, expected, rtol=0, atol=0, equal_nan=True)
    if not (close and actual.is_floating_point()):
        return close
    return bool(((actual.signbit() == expected.signbit()) | expected.isnan()).all())


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def logged(function: Callable, *arguments) -> list[str]:
    """Call a function; return what the library wrote to stderr meanwhile."""
    with tempfile.TemporaryFile() as sink:
        saved = os.dup(2)
        os.dup2(sink.fileno(), 2)
        try:
            outcome(function, *arguments)
        finally:
            os.dup2(saved, 2)
            os.close(saved)
        sink.seek(0)
        lines = sink.read().decode().splitlines()
    return [line for line in lines if line.startswith("opbook: ")]


def gradients() -> bool:
    x = torch.randn(3, 4, device=DEVICE, dtype=torch.float64, requires_grad=True)
    return torch.autograd.gradcheck(torch.neg, x) and torch.autograd.gradgradcheck(
        torch.neg, x
    )


def compiled(x: torch.Tensor) -> torch.Tensor:
    return torch.compile(torch.neg, backend="aot_eager", fullgraph=True)(x)


def out_and_in_place(x: torch.Tensor) -> None:
    torch.neg(x, out=torch.empty_like(x))
    x.clone().neg_()


def on_a_side_stream(late: torch.Tensor) -> torch.Tensor:
    from gpu import on_a_busy_stream

    return on_a_busy_stream(torch.neg, late)


def main() -> None:
    cases = {"inputs": inputs(), "views": views(), "refused": refused()}
    expected = {
        kind: {name: outcome(torch.neg, x) for name, x in some.items()}
        for kind, some in cases.items()
    }
    before = torch._C._dispatch_dump_table("aten::neg")

    import opbook  # noqa: F401 - may replace the kernel

    x = torch.randn(2, 3, device=DEVICE)
    gap = torch.randn(2, 6, device=DEVICE)[:, ::2]
    calls = {
        "dense": logged(torch.neg, x),
        "operator": logged(lambda: -x),
        "strided": logged(torch.neg, gap),
        "half": logged(torch.neg, x.half().t()),
        "bool": logged(torch.neg, x > 0),
        "out and in-place": logged(out_and_in_place, x),
        "meta": logged(torch.neg, x.to("meta")),
        "compiled": logged(compiled, x),
    }
    faults = {}
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a line a call, from here on
    for kind, some in cases.items():
        faults[kind] = [
            f"{name}: {actual}, not {expected[kind][name]}"[:300]
            for name, argument in some.items()
            if not same(actual := outcome(torch.neg, argument), expected[kind][name])
        ]
    faults["gradients"] = [] if gradients() is True else ["wrong"]
    batch = torch.func.vmap(torch.neg)(x)
    rate = torch.func.jvp(torch.neg, (x,), (x,))[1]
    faults["transforms"] = [
        name
        for name, y in {"vmap": batch, "jvp": rate, "compile": compiled(x)}.items()
        if not torch.equal(y, torch.sub(0, x))
    ]
    with torch.inference_mode():
        faults["inference"] = [] if torch.equal(torch.neg(gap), 0 - gap) else ["wrong"]
    if DEVICE == "cuda":
        late = torch.randn(1024, device=DEVICE)
        good = torch.equal(on_a_side_stream(late), 0 - late)
        faults["stream"] = [] if good else ["another stream"]
        large = torch.ones(65536 * 256 * 16 + 5, dtype=torch.int8, device=DEVICE)
        faults["large"] = [] if (torch.neg(large) == -1).all() else ["wrong"]
    after = torch._C._dispatch_dump_table("aten::neg")
    changed = [
        line.partition(":")[0]
        for line in after.splitlines()
        if line not in before.splitlines()
    ]
    sizes = {kind: len(some) for kind, some in cases.items()}
    found = {"cases": sizes, "faults": faults, "calls": calls, "changed": changed}
    print(json.dumps(found))


main()

"""Every public operator with every dtype on every device, as eager does it.

What is seen is what docs/reference/support_matrix.md shows: name a file in the
environment variable OPBOOK_SUPPORT, and it is written there.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import opbook
from called import Called
from eager import assert_same_outcome, outcome, results
from gpu import needs_gpu

DTYPES = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.int32,
    torch.bool,
    torch.float8_e4m3fn,
)
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu), "meta"]


# [samples]
@dataclass(frozen=True)
class Sample:
    """How to call an operator, and what eager PyTorch offers for the same."""

    eager: Callable
    shapes: tuple[tuple[int, ...], ...]


SAMPLES = {
    "add_one": Sample(lambda x: x + 1, ((3, 8),)),
    "add_rms_norm": Sample(
        lambda x, r: (F.rms_norm(x + r, x.shape[-1:]), x + r), ((3, 8), (3, 8))
    ),
    "linear_gelu": Sample(lambda *args: F.gelu(F.linear(*args)), ((3, 8), (4, 8))),
    "matmul": Sample(torch.mm, ((3, 8), (8, 4))),
    "rms_norm": Sample(lambda x: F.rms_norm(x, x.shape[-1:]), ((3, 8),)),
    "rms_norm_": Sample(lambda x: x.copy_(F.rms_norm(x, x.shape[-1:])), ((3, 8),)),
}


def tensors(name: str, device: str, dtype: torch.dtype) -> list[Tensor]:
    """Arguments whose values every dtype can hold after a rounding."""
    shapes = SAMPLES[name].shapes
    sizes = [torch.Size(shape).numel() for shape in shapes]
    return [
        torch.linspace(-1.5, 2, size).view(shape).to(dtype).to(device)
        for size, shape in zip(sizes, shapes, strict=True)
    ]


# [/samples]


# [support]
def support(name: str, device: str, dtype: torch.dtype) -> str:
    """Call the operator as eager is called, and say which way the call took."""
    sample, operator = SAMPLES[name], getattr(opbook, name)
    with Called() as called:
        ours = outcome(operator, *tensors(name, device, dtype))
    native = any(name.startswith("opbook::") for name in called.names)
    theirs = outcome(sample.eager, *tensors(name, device, dtype))
    if isinstance(ours, Exception):
        if device == "meta":
            # Eager may describe a result that it cannot compute on any device.
            theirs = outcome(sample.eager, *tensors(name, "cpu", dtype))
        assert_same_outcome(ours, theirs)
        return "refused"
    if native:
        assert_same_outcome(ours, theirs)
    else:
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    for one, other in zip(results(ours), results(theirs), strict=True):
        assert one.stride() == other.stride()
    return "native" if native else "eager"


# [/support]


@pytest.fixture(scope="module")
def seen():
    """What the tests saw: for an operator on a device, the dtypes of each answer."""
    answers: dict[str, dict[str, list[str]]] = {}
    yield answers
    if path := os.environ.get("OPBOOK_SUPPORT"):
        lines = (f" {json.dumps(k)}: {json.dumps(v)}" for k, v in answers.items())
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")


def test_every_public_operator_has_a_sample():
    assert set(opbook.__all__) == SAMPLES.keys()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", opbook.__all__)
def test_support(name, device, dtype, seen):
    answer = support(name, device, dtype)
    row = seen.setdefault(f"{name} {device}", {})
    row.setdefault(answer, []).append(str(dtype).removeprefix("torch."))

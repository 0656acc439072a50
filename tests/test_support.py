"""Every public operator with every dtype on every device, as eager does it.

What is seen is what docs/reference/support_matrix.md shows: name a file in the
environment variable OPBOOK_SUPPORT, and it is written there.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import opbook
import registry
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


def rounded(device: str, dtype: torch.dtype) -> Callable[[list[int]], Tensor]:
    """What makes a tensor whose values every dtype can hold after a rounding."""

    def tensor(shape: list[int]) -> Tensor:
        values = torch.linspace(-1.5, 2, torch.Size(shape).numel()).view(shape)
        return values.to(dtype).to(device)

    return tensor


# [support]
def support(name: str, device: str, dtype: torch.dtype) -> str:
    """Call the operator as eager is called, and say which way the call took."""
    sample, operator = registry.sample(name), getattr(opbook, name)
    with Called() as called:
        ours = outcome(operator, *sample.made(rounded(device, dtype)))
    native = any(name.startswith("opbook::") for name in called.names)
    theirs = outcome(sample.eager, *sample.made(rounded(device, dtype)))
    if isinstance(ours, Exception):
        if device == "meta":
            # Eager may describe a result that it cannot compute on any device.
            theirs = outcome(sample.eager, *sample.made(rounded("cpu", dtype)))
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
    if path := os.environ.get("RECORD_DATA"):
        Path(path).write_text(json.dumps(answers), encoding="utf-8")


# One parameter, not two: the table has to have every combination.
PLACES = [
    pytest.param((name, device), id=f"{name}-{device}", marks=marks)
    for name in registry.FUNCTIONS
    for device, marks in {"cpu": (), "cuda": needs_gpu, "meta": ()}.items()
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("place", PLACES)
def test_support(place, dtype, seen):
    name, device = place
    answer = support(name, device, dtype)
    row = seen.setdefault(f"{name} {device}", {})
    row.setdefault(answer, []).append(str(dtype).removeprefix("torch."))

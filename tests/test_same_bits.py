"""What the docstrings of the operators promise of their bits."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import opbook
import registry
from eager import results

SIZES = {"rows": 300, "hidden": 1537, "features": 33}
ALONE = (1, 2, 3, 8)


def outputs_and_gradients(name: str, device: str) -> list[Tensor]:
    """All that a call and its backward compute, from the same random numbers."""
    sample = registry.sample(name)  # which may draw numbers when it is imported
    torch.manual_seed(0)
    leaves = sample.made(lambda shape: registry.leaf(shape, device), SIZES)
    call = [x.clone() if isinstance(x, Tensor) else x for x in leaves]  # may be written
    outputs = results(getattr(opbook, name)(*call))
    sum(each.square().sum() for each in outputs).backward()
    return [*outputs, *(x.grad for x in leaves if isinstance(x, Tensor))]


@pytest.mark.parametrize("name", registry.FUNCTIONS)
def test_the_same_call_gives_the_same_bits(name, device):
    first = outputs_and_gradients(name, device)
    for _ in range(20):
        for again, expected in zip(
            outputs_and_gradients(name, device), first, strict=True
        ):
            torch.testing.assert_close(again, expected, rtol=0, atol=0)


def batches_that_change_a_row(call: Callable, arguments: list) -> list[int]:
    """Sizes of a batch in which a row has other bits than among all rows.

    Args:
        call: Its first result is compared.
        arguments: Of these, the matrices are cut into batches.
    """

    def part(begin: int, end: int) -> Tensor:
        chosen = (
            x[begin:end].clone() if isinstance(x, Tensor) and x.dim() == 2 else x
            for x in arguments
        )
        return results(call(*chosen))[0]

    among_all, rows = part(0, SIZES["rows"]), range(SIZES["rows"])
    return [
        size
        for size in ALONE
        if not all(
            torch.equal(part(i, i + size), among_all[i : i + size])
            for i in rows[::size]
        )
    ]


@pytest.mark.parametrize("name", ["rms_norm", "rms_norm_", "add_rms_norm"])
def test_on_a_cpu_a_row_does_not_depend_on_its_batch(name):
    arguments = registry.sample(name).made(torch.randn, SIZES)
    assert batches_that_change_a_row(getattr(opbook, name), arguments) == []


def test_a_product_that_depends_on_its_batch_is_found():
    weight = torch.randn(512, SIZES["hidden"])
    x = torch.randn(SIZES["rows"], SIZES["hidden"])
    assert batches_that_change_a_row(lambda x: F.linear(x, weight), [x])

"""What the docstrings of the operators promise of their bits."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import opbook
import registry

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "examples_src/sources/promise_the_same_bits"))
from bits import changes  # noqa: E402  found through the line above

SIZES = {"rows": 300, "hidden": 1537, "features": 33}
NORMS = {
    "rms_norm": opbook.rms_norm,
    "rms_norm_": lambda x, weight: opbook.rms_norm_(x.clone(), weight),
    "add_rms_norm": lambda x, weight: opbook.add_rms_norm(x, x, weight)[0],
}


@pytest.mark.parametrize("name", registry.FUNCTIONS)
def test_the_same_call_gives_the_same_bits(name, device):
    registry.sample(name)  # its file may draw numbers when it is imported
    torch.manual_seed(0)
    first = registry.with_gradient(name, device, SIZES)
    for _ in range(20):
        torch.manual_seed(0)
        again = registry.with_gradient(name, device, SIZES)
        torch.testing.assert_close(again, first, rtol=0, atol=0)


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS.keys())
def test_on_a_cpu_a_row_does_not_depend_on_its_batch(norm):
    x, weight = (
        torch.randn(SIZES["rows"], SIZES["hidden"]),
        torch.randn(SIZES["hidden"]),
    )
    assert changes(lambda rows: norm(rows, weight), x) == []


def test_a_product_that_depends_on_its_batch_is_found():
    x, weight = torch.randn(300, 1537), torch.randn(512, 1537)
    assert changes(lambda rows: F.linear(rows, weight), x)

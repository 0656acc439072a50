"""Tests of a Triton operator, on a GPU or in the interpreter."""

import os

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import opbook.triton  # registers the operators

DTYPES = [torch.float16, torch.bfloat16, torch.float32]


# [correct]
LAYOUTS = {
    "transposed": lambda x: x.t(),
    "every_second": lambda x: x[:, ::2],
    "expanded": lambda x: x[:1].expand(4, -1),
    "no_dimension": lambda x: x[0, 0],
    "empty": lambda x: x[:0],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [1, 127, 1024, 1025])
def test_equals_eager(size, dtype):
    x = torch.randn(size, device=DEVICE).to(dtype)
    before = x.clone()
    unit = torch.finfo(dtype).eps  # the interpreter cuts off where a GPU rounds
    torch.testing.assert_close(opbook.scale(x, 2.5), x * 2.5, rtol=unit, atol=0)
    assert torch.equal(x, before)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_takes_any_layout(layout):
    x = LAYOUTS[layout](torch.randn(6, 40, device=DEVICE))
    torch.testing.assert_close(opbook.scale(x, 2.5), x * 2.5)


# [/correct]


# [registration]
@pytest.mark.parametrize("layout", ["transposed", "empty"])
def test_opcheck(layout):
    x = LAYOUTS[layout](torch.randn(6, 40, device=DEVICE)).requires_grad_()
    torch.library.opcheck(torch.ops.opbook_triton.scale.default, (x, 2.5))


def test_compiles_without_a_graph_break():
    compiled = torch.compile(opbook.scale, fullgraph=True, backend="aot_eager")
    for rows in (4, 7):  # the second size makes the compiler ask for any size
        x = torch.randn(rows, 8, device=DEVICE).t()
        torch.testing.assert_close(compiled(x, 2.5), x * 2.5)


def test_refuses_what_it_cannot_compute():
    x = torch.ones(3, device=DEVICE)
    with pytest.raises(NotImplementedError, match="input must be fp16, bf16 or fp32"):
        opbook.scale(x.double(), 2.5)
    with pytest.raises(TypeError, match="factor must be a real number"):
        opbook.scale(x, torch.tensor(2.5, requires_grad=True))


# [/registration]

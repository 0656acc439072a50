"""starter.swiglu against PyTorch's own operators."""

import os

import pytest
import torch

HAS_GPU = torch.cuda.is_available()
if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import starter

DEVICE = "cuda" if HAS_GPU else "cpu"
torch._inductor.config.fx_graph_cache = False  # it would not notice your edits
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SHAPES = [(), (0,), (1,), (7, 3), (2, 0, 5), (1024,), (3, 1031), (2, 3, 1024)]


# [reference]
def reference(gate, up, limit=None):
    """Compute in fp64 what the operator should return."""
    g, u = gate.double(), up.double()
    if limit is not None:  # not clamp: its gradient at the limit is 0 since torch 2.14
        g = g.masked_fill(g > limit, limit)
        u = u.masked_fill(u > limit, limit).masked_fill(u < -limit, -limit)
    return (g * torch.sigmoid(g) * u).to(gate.dtype)


# [/reference]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def check(gate, up, limit=None, operator=starter.swiglu, grad=None):
    """Compare the output and both gradients with the reference's."""
    gate, up = gate.detach().requires_grad_(), up.detach().requires_grad_()
    actual, expected = operator(gate, up, limit), reference(gate, up, limit)
    exact = {"rtol": 1e-12, "atol": 1e-12} if gate.dtype == torch.float64 else {}
    torch.testing.assert_close(actual, expected, equal_nan=True, **exact)
    grad = torch.randn_like(gate) if grad is None else grad
    expected = torch.autograd.grad(expected, (gate, up), grad)
    for again in (True, False):  # with create_graph, PyTorch's operators compute it
        result = torch.autograd.grad(actual, (gate, up), grad, create_graph=again)
        torch.testing.assert_close(result, expected, equal_nan=True, **exact)
    (alone,) = torch.autograd.grad(operator(gate.detach(), up, limit), up, grad)
    torch.testing.assert_close(alone, expected[1], equal_nan=True, **exact)


# Some of the rounded numbers equal 0.5, and fp32 does not hold 0.55 exactly.
@pytest.mark.parametrize("limit", [None, 0.5, 0.55])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_the_reference(shape, dtype, limit):
    check(*torch.randn(2, *shape, device=DEVICE, dtype=dtype).round(decimals=1), limit)


LAYOUTS = {
    "transposed": lambda x: x.t(),
    "every_second_column": lambda x: x[:, ::2],
    "half": lambda x: x.chunk(2, dim=-1)[1],
    "expanded": lambda x: x[:1].expand(4, -1),
    "one_element": lambda x: x[0, 0].expand(4, 5),  # a gradient that sum() returns
}


@pytest.mark.parametrize("columns", [600, 2600])  # short rows are copied, long ones not
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_strides(layout, columns):
    gate, up, grad = map(LAYOUTS[layout], torch.randn(3, 4, columns, device=DEVICE))
    check(gate, up, grad=grad)
    check(gate, up.contiguous())
    check(gate.contiguous(), up, grad=grad)


def test_infinity_and_nan():
    values = torch.tensor([0.0, -0.0, 1e4, -1e4, torch.inf, torch.nan], device=DEVICE)
    check(values.repeat(6), values.repeat_interleave(6), 2.0)


WRONG = {
    "expected up of shape [2, 3], but got [3]": lambda x: (x, x[0]),
    "expected up of shape [2, 3], but got [2]": lambda x: (x, x[:, 0].to("meta")),
    "expected up of dtype torch.float32, but got": lambda x: (x, x.double()),
    "expected gate of fp16, bf16, fp32 or fp64": lambda x: (x.int(), x.int()),
    "expected limit to be positive, but got 0": lambda x: (x, x, 0.0),
    "expected limit to be positive, but got nan": lambda x: (x, x, float("nan")),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments_are_refused(message):
    arguments = WRONG[message](torch.randn(2, 3, device=DEVICE))
    with pytest.raises(RuntimeError) as error:
        starter.swiglu(*arguments)
    assert f"starter::swiglu: {message}" in str(error.value)


@pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
def test_two_devices_are_refused():
    with pytest.raises(RuntimeError, match="expected up on cuda:0, but got cpu"):
        starter.swiglu(torch.ones(3, device="cuda"), torch.ones(3))


def test_an_overwritten_input_is_noticed():
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    changed = x * 1
    y = starter.swiglu(changed, x)
    changed.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("limit", [None, 0.5])
def test_first_and_second_derivatives(limit):
    gate, up = torch.randn(2, 3, 4, device=DEVICE, dtype=torch.float64)
    arguments = gate.requires_grad_(), up.requires_grad_(), limit
    assert torch.autograd.gradcheck(starter.swiglu, arguments)
    with torch.autograd.graph.save_on_cpu():  # hooks, as those of a checkpoint
        assert torch.autograd.gradgradcheck(starter.swiglu, arguments)


def test_forward_mode_is_refused():
    x = torch.randn(3, device=DEVICE)
    backward = torch.ops.starter.swiglu_backward
    for call in (
        lambda t: starter.swiglu(t, x),
        lambda t: torch.ops.starter.swiglu(x, t),
        lambda t: backward(t, x, x),
    ):
        with pytest.raises(NotImplementedError, match="has no forward-mode derivative"):
            torch.func.jvp(call, (x,), (x,))


def test_opcheck():
    gate, up, grad = torch.randn(3, 6, 40, device=DEVICE)
    backward = torch.ops.starter.swiglu_backward
    torch.library.opcheck(backward, (grad, gate, up, 2.0))
    assert backward(grad, gate, up, 2.0, False)[0].numel() == 0
    with pytest.raises(RuntimeError, match=r"expected grad of shape \[6, 40\]"):
        backward(grad[0], gate, up)
    arguments = gate.requires_grad_(), up.t().contiguous().t().requires_grad_()
    torch.library.opcheck(torch.ops.starter.swiglu, arguments)


def test_compiles_without_a_graph_break():
    gate, up = torch.randn(2, 6, 40, device=DEVICE)
    check(gate, up, 2.0, torch.compile(starter.swiglu, fullgraph=True))


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_compiles_with_sizes_that_depend_on_data():
    both = torch.compile(
        lambda x, y: starter.swiglu(x[x > 0], y[y > 0]), fullgraph=True
    )
    x = torch.tensor([1.0, 2.0, -1.0], device=DEVICE)
    torch.testing.assert_close(both(x, x.flip(0)), starter.swiglu(x[:2], x[:2].flip(0)))

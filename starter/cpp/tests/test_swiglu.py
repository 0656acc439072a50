"""starter.swiglu against PyTorch's own operators."""

import pytest
import torch

import starter

try:
    torch.library.get_kernel("starter::swiglu", "CUDA")
    has_gpu = torch.cuda.is_available()
except RuntimeError:  # it was built without a GPU compiler
    has_gpu = False
needs_gpu = pytest.mark.skipif(not has_gpu, reason="no GPU, or no kernels for it")
torch._inductor.config.fx_graph_cache = False  # [fake/] it would not notice your edits
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
# Nothing, one element, multiples of a 16-byte vector and others, several blocks.
SHAPES = [(), (0,), (1,), (8,), (7, 3), (2, 0, 5), (3, 1031), (2, 3, 4096)]


# [reference]
def reference(gate, up, limit=None):
    """Compute in fp64 what the operator should return."""
    g, u = gate.double(), up.double()
    if limit is not None:  # not clamp: its gradient at the limit is 0 since torch 2.14
        g = g.masked_fill(g > limit, limit)
        u = u.masked_fill(u > limit, limit).masked_fill(u < -limit, -limit)
    return (g * torch.sigmoid(g) * u).to(gate.dtype)


# [/reference]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_gpu)])
def device(request):
    torch.manual_seed(0)
    return request.param


def check(gate, up, limit=None, operator=starter.swiglu, grad=None):
    """Compare all that the operator computes with the reference."""
    gate, up = (arg.detach().requires_grad_() for arg in (gate, up))  # [autograd/]
    actual, expected = operator(gate, up, limit), reference(gate, up, limit)
    exact = {"rtol": 1e-12, "atol": 1e-12} if gate.dtype == torch.float64 else {}
    torch.testing.assert_close(actual, expected, equal_nan=True, **exact)
    grad = torch.randn_like(gate) if grad is None else grad  # [autograd]
    expected = torch.autograd.grad(expected, (gate, up), grad)
    for again in (True, False):  # with create_graph, PyTorch's operators compute it
        result = torch.autograd.grad(actual, (gate, up), grad, create_graph=again)
        torch.testing.assert_close(result, expected, equal_nan=True, **exact)
    (alone,) = torch.autograd.grad(operator(gate.detach(), up, limit), up, grad)
    torch.testing.assert_close(alone, expected[1], equal_nan=True, **exact)
    # [/autograd]


# Some of the rounded numbers equal 0.5, and fp32 does not hold 0.55 exactly.
@pytest.mark.parametrize("limit", [None, 0.5, 0.55])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_the_reference(device, shape, dtype, limit):
    check(*torch.randn(2, *shape, device=device, dtype=dtype).round(decimals=1), limit)


LAYOUTS = {
    "transposed": lambda x: x.t(),
    "every_second_column": lambda x: x[:, ::2],
    "half": lambda x: x.chunk(2, dim=-1)[1],
    "half_of_3_dimensions": lambda x: x.view(2, 2, -1).chunk(2, dim=-1)[1],
    "rows_with_a_tail": lambda x: x[:, :1025],
    "not_aligned": lambda x: x[:, 1:1025],
    "expanded_rows": lambda x: x[:1].expand(4, -1),
    "expanded_columns": lambda x: x[:, :1].expand(-1, 5),
    "one_element": lambda x: x[0, 0].expand(4, 5),  # a gradient that sum() returns
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_strides(device, layout, dtype):
    tensors = torch.randn(3, 4, 2400, device=device, dtype=dtype)
    gate, up, grad = map(LAYOUTS[layout], tensors)
    check(gate, up, grad=grad)
    check(gate, up.contiguous())
    check(gate.contiguous(), up, grad=grad)


def test_infinity_and_nan(device):
    values = torch.tensor([0.0, -0.0, 1e4, -1e4, torch.inf, torch.nan], device=device)
    check(values.repeat(6), values.repeat_interleave(6), 2.0)


WRONG = {
    "expected up of shape [2, 3], but got [3]": lambda x: (x, x[0]),
    "expected up of dtype Float, but got Double": lambda x: (x, x.double()),
    "expected gate of fp16, bf16, fp32 or fp64, but got Int": lambda x: (x.int(),) * 2,
    "expected limit to be positive, but got 0": lambda x: (x, x, 0.0),
    "expected limit to be positive, but got nan": lambda x: (x, x, float("nan")),
    # [fake]
    "expected up of shape [2, 3], but got [2]": lambda x: (x, x[:, 0].to("meta")),
    "expected up on the device of the other": lambda x: (x, x.to("meta")),
    # [/fake]
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments_are_refused(device, message):
    arguments = WRONG[message](torch.randn(2, 3, device=device))
    with pytest.raises(RuntimeError) as error:
        starter.swiglu(*arguments)
    assert str(error.value).startswith(f"starter::swiglu: {message}")


def test_an_overwritten_input_is_noticed(device):  # [autograd]
    x = torch.ones(3, device=device, requires_grad=True)
    changed = x * 1
    y = starter.swiglu(changed, x)
    changed.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("limit", [None, 0.5])
def test_first_and_second_derivatives(device, limit):
    gate, up = torch.randn(2, 3, 4, device=device, dtype=torch.float64)
    arguments = gate.requires_grad_(), up.requires_grad_(), limit
    assert torch.autograd.gradcheck(starter.swiglu, arguments)
    with torch.autograd.graph.save_on_cpu():  # hooks, as those of a checkpoint
        assert torch.autograd.gradgradcheck(starter.swiglu, arguments)


def test_forward_mode_is_refused(device):
    x = torch.randn(3, device=device)
    for call in (lambda t: starter.swiglu(t, x), lambda t: starter.swiglu(x, t)):
        with pytest.raises(NotImplementedError, match="has no forward-mode derivative"):
            torch.func.jvp(call, (x,), (x,))  # [/autograd]


def test_opcheck(device):  # [fake]
    gate, up, grad = torch.randn(3, 6, 40, device=device)
    up = up.t().contiguous().t()
    # [autograd]
    backward = torch.ops.starter.swiglu_backward
    torch.library.opcheck(backward, (grad, gate, up, 2.0))
    assert backward(grad, gate, up, 2.0, False)[0].numel() == 0
    with pytest.raises(RuntimeError, match=r"expected grad of shape \[6, 40\]"):
        backward(grad[0], gate, up)
    gate, up = gate.requires_grad_(), up.requires_grad_()  # [/autograd]
    torch.library.opcheck(torch.ops.starter.swiglu, (gate, up))


def test_compiles_without_a_graph_break(device):
    gate, up = torch.randn(2, 6, 40, device=device)
    check(gate, up, 2.0, torch.compile(starter.swiglu, fullgraph=True))


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_compiles_with_sizes_that_depend_on_data(device):
    some = torch.compile(lambda x: starter.swiglu(x[x > 0], x[x < 2]), fullgraph=True)
    x = torch.tensor([1.0, 2.0, -1.0], device=device)
    torch.testing.assert_close(some(x), starter.swiglu(x[:2], x[::2]))
    # [/fake]

"""starter.softmax_lse against PyTorch's own operators."""

import os

import pytest
import torch

HAS_GPU = torch.cuda.is_available()
if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import starter

torch._inductor.config.fx_graph_cache = False  # it would not notice your edits
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
# No rows, empty rows, rows of one element, short ones, and one that takes two turns.
SHAPES = [(0, 3), (2, 0), (1,), (5, 1), (7, 3), (2, 3, 264), (3, 5001)]


# [reference]
def reference(scores, mask=None, scale=1.0):
    """Compute in fp64 what the operator should return."""
    x = scores.double() * scale
    if mask is not None:
        x = x.masked_fill(~mask, -torch.inf)
    is_masked = (x == -torch.inf).all(-1, keepdim=True)
    probs = x.masked_fill(is_masked, 0).softmax(-1).masked_fill(is_masked, 0)
    wide = torch.promote_types(scores.dtype, torch.float32)
    return probs.to(scores.dtype), x.logsumexp(-1).to(wide)


# [/reference]


@pytest.fixture
def device():
    torch.manual_seed(0)
    return "cuda" if HAS_GPU else "cpu"


def check(scores, mask=None, scale=1.0, operator=starter.softmax_lse, grads=None):
    """Compare both results, and the gradient through both and through each alone."""
    scores = scores.detach().requires_grad_()
    actual, expected = operator(scores, mask, scale), reference(scores, mask, scale)
    # The gradient is a difference of rounded products: it errs by less than their sum.
    exact = {"rtol": 1e-12, "atol": 1e-12} if scores.dtype == torch.float64 else {}
    rounded = {"rtol": 0.02, "atol": 0.02} if scores.dtype.itemsize == 2 else exact
    torch.testing.assert_close(actual, expected, equal_nan=True, **exact)
    for used in ([0], [1], [0, 1]):
        results, right = ([y[i] for i in used] for y in (actual, expected))
        grad = [grads[i] if grads else torch.randn_like(expected[i]) for i in used]
        given = {"inputs": scores, "grad_outputs": grad, "retain_graph": True}
        right = torch.autograd.grad(right, **given)
        for again in (True, False):  # with create_graph, PyTorch's operators compute it
            result = torch.autograd.grad(results, **given, create_graph=again)
            torch.testing.assert_close(result, right, equal_nan=True, **rounded)


@pytest.mark.parametrize("scale", [1.0, -0.3])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_the_reference(device, shape, dtype, scale):
    scores = torch.randn(shape, device=device, dtype=dtype)
    check(scores, None, scale)
    check(scores, torch.rand(shape, device=device) < 0.5, scale)


LAYOUTS = {
    "transposed": lambda x: x.mT,
    "every_second_column": lambda x: x[..., ::2],
    "not_aligned": lambda x: x[..., 1:9],
    "permuted": lambda x: x.permute(2, 0, 1, 3),
    "expanded_rows": lambda x: x[:, :1].expand(-1, 3, -1, -1),
    "expanded_columns": lambda x: x[..., :1].expand(-1, -1, -1, 16),
    "one_element": lambda x: x[0, 0, 0, 0].expand(4, 5),  # that sum() returns
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_strides(device, layout, dtype):
    several = torch.randn(3, 2, 1, 4, 16, device=device, dtype=dtype)
    scores, grad, kept = map(LAYOUTS[layout], several)
    grads = grad, grad[..., 0].to(torch.promote_types(dtype, torch.float32))
    check(scores, kept > 0, grads=grads)
    check(scores.contiguous(), kept > 0)
    check(scores, (kept > 0).contiguous(), grads=grads)


MASKS = [(), (1,), (16,), (4, 1), (4, 16), (3, 1, 1), (2, 1, 4, 16), (2, 1, 1, 16)]


@pytest.mark.parametrize("shape", MASKS, ids=str)
def test_a_mask_is_broadcast(device, shape):
    scores = torch.randn(2, 3, 4, 16, device=device)
    check(scores, torch.rand(shape, device=device) < 0.5)


# [reference] Only of a softmax: a masked row is 0, and the result is saved.
def test_a_masked_row_is_zero_whatever_gradient_arrives(device):
    scores = torch.randn(2, 40, device=device, requires_grad=True)
    kept = torch.tensor([[False], [True]], device=device)
    probs, lse = starter.softmax_lse(scores, kept)
    assert probs[0].eq(0).all()
    loss = probs.log().sum() + lse.square().sum()  # of row 0, both are infinite
    for again in (True, False):
        (grad,) = torch.autograd.grad(loss, scores, create_graph=again)
        assert grad[0].eq(0).all()
        assert grad[1].isfinite().all()


def test_an_overwritten_result_is_noticed(device):
    x = torch.ones(3, device=device, requires_grad=True)
    probs, lse = starter.softmax_lse(x)
    probs.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        lse.backward()  # [/reference]


def test_special_numbers(device):
    values = torch.tensor([0.0, -0.0, 3e38, -3e38, torch.inf, -torch.inf, torch.nan])
    pairs = torch.cartesian_prod(values, values, torch.tensor([1.0])).to(device)
    for scores in (pairs, pairs.double(), pairs.repeat(1, 20)):
        actual = starter.softmax_lse(scores), starter.softmax_lse(scores, scores < 1)
        expected = reference(scores), reference(scores, scores < 1)
        torch.testing.assert_close(actual, expected, equal_nan=True)


WRONG = {
    "expected scores with 1 dimension or more": lambda x: (x[0, 0],),
    "expected scores of fp16, bf16, fp32 or fp64": lambda x: (x.int(),),
    "expected mask of dtype torch.bool, but got torch.float32": lambda x: (x, x),
    "expected mask that broadcasts to shape [2, 3]": lambda x: (x, x[:, :2] > 0),
    "expected mask that broadcasts to shape [3]": lambda x: (x[0], x > 0),
    "expected mask that broadcasts": lambda x: (x, (x[:, :2] > 0).to("meta")),
    "expected scale to be finite in fp32, but got 1e+39": lambda x: (x, None, 1e39),
    "expected scale to be finite in fp32": lambda x: (x, None, float("nan")),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments_are_refused(device, message):
    arguments = WRONG[message](torch.randn(2, 3, device=device))
    with pytest.raises(RuntimeError) as error:
        starter.softmax_lse(*arguments)
    assert f"starter::softmax_lse: {message}" in str(error.value)


@pytest.mark.parametrize("result", [slice(0, 1), slice(1, 2), slice(0, 2)], ids=str)
def test_first_and_second_derivatives(device, result):
    x = torch.randn(3, 4, device=device, dtype=torch.float64, requires_grad=True)
    kept = torch.tensor([[True, False, True, True]] * 2 + [[False] * 4], device=device)

    def function(x):
        probs, lse = starter.softmax_lse(x, kept, 0.7)
        return (probs, lse[:2])[result]  # the last is infinite

    assert torch.autograd.gradcheck(function, x)
    with torch.autograd.graph.save_on_cpu():  # hooks, as those of a checkpoint
        assert torch.autograd.gradgradcheck(function, x)


def test_forward_mode_is_refused(device):
    x = torch.randn(3, device=device)
    backward = torch.ops.starter.softmax_lse_backward
    for call in (starter.softmax_lse, lambda t: backward(t, None, x, 1.0)):
        with pytest.raises(NotImplementedError, match="has no forward-mode derivative"):
            torch.func.jvp(call, (x,), (x,))


def test_opcheck(device):
    x, grad = torch.randn(2, 3, 2, 40, device=device)
    probs, lse = starter.softmax_lse(x)
    backward = torch.ops.starter.softmax_lse_backward
    for some in ((grad, lse), (None, lse), (grad, None), (None, None)):
        torch.library.opcheck(backward, (*some, probs, 0.5))
    with pytest.raises(RuntimeError, match=r"grad_probs of shape \[3, 2, 40\]"):
        backward(grad[:1], None, probs, 1.0)
    with pytest.raises(RuntimeError, match=r"expected grad_lse of shape \[3, 2\]"):
        backward(None, lse[0], probs, 1.0)
    x, kept = x.mT.requires_grad_(), grad[:, :1, :2] > 0
    torch.library.opcheck(torch.ops.starter.softmax_lse, (x, kept, 0.5))


def test_compiles_without_a_graph_break(device):
    x = torch.randn(6, 40, device=device)
    check(x, x[0] > 0, 0.5, torch.compile(starter.softmax_lse, fullgraph=True))


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_compiles_with_sizes_that_depend_on_data(device):
    def some(x):
        return starter.softmax_lse(x[x > 0], x[x > 0] > 1)

    x = torch.tensor([1.0, 2.0, -1.0], device=device)
    torch.testing.assert_close(torch.compile(some, fullgraph=True)(x), some(x))

"""opbook.triton.attention against scaled_dot_product_attention and fp64."""

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounterWithBackend

from called import NoGradient
from gpu import HAS_GPU, needs_gpu

pytest.importorskip("triton", reason="needs triton")
ops = pytest.importorskip("opbook.triton")
from opbook.triton.attention import HEAD_DIMS, empty_in_order, readable  # noqa: E402

DEVICE = "cuda" if HAS_GPU else "cpu"
HALVES = (torch.float16, torch.bfloat16)
# The interpreter takes blocks of 32 by 32. Queries, keys: one, exactly one block, and
# several with a part of one, in both directions.
LENGTHS = ((1, 1), (1, 33), (32, 32), (33, 70), (70, 33), (65, 64))
namespace = torch.ops.opbook_triton
causal_or_not = pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])


def heads(length, dim=16, dtype=torch.float32, batch=2, count=2):
    return torch.randn(batch, count, length, dim, device=DEVICE).to(dtype)


def operands(q_len, kv_len, dim=16, dtype=torch.float32):
    return [heads(length, dim, dtype) for length in (q_len, kv_len, kv_len)]


def results(function, tensors, grad, **options):
    """The output, and the gradients of query, key and value."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    output = function(*leaves, **options)
    return output, *torch.autograd.grad(output, leaves, grad.to(output.dtype))


def check(tensors, causal=False, **options):
    """Allow twice the error that eager has beside fp64, and some roundings.

    Two of the largest number: in a row that sees one key, the gradients of query and
    key are zero, and what eager and ours have instead is the difference of two sums
    that are equal but for rounding. And one in fp32 for each unit of the largest score,
    because the exponential of a score has the score's absolute error.
    """
    grad = torch.randn_like(tensors[0])
    options["is_causal"] = causal
    sdpa = F.scaled_dot_product_attention
    exact = results(sdpa, [t.double() for t in tensors], grad, **options)
    # Of copies: SDPA's own kernels fail for fp32 at an odd address.
    eager = results(sdpa, [t.clone() for t in tensors], grad, **options)
    options["causal"] = options.pop("is_causal")
    ours = results(ops.attention, tensors, grad, **options)
    query, key = (t.double() for t in tensors[:2])
    score = (query @ key.mT).abs().max() * query.shape[-1] ** -0.5
    eps = 2 * torch.finfo(grad.dtype).eps + score * torch.finfo(torch.float32).eps
    roundings = eps * max(t.abs().max() for t in exact)
    for name, actual, expected, best in zip(
        ("output", "query", "key", "value"), ours, eager, exact, strict=True
    ):
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        allowed = 2 * (expected - best).abs().max() + roundings
        error = (actual - best).abs().max()
        assert error <= allowed, f"{name}: {error:.1e}, where {allowed:.1e} is allowed"


@causal_or_not
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_lengths(lengths, causal):
    check(operands(*lengths), causal)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@causal_or_not
def test_half_types(dtype, causal):
    check(operands(70, 45, 32, dtype), causal)


@pytest.mark.parametrize("dim", HEAD_DIMS)
def test_head_dims(dim):
    check(operands(33, 40, dim, torch.float16), causal=True)


@pytest.mark.parametrize("scale", [0.01, 1.0, 3])
def test_scale(scale):
    check(operands(40, 40), causal=True, scale=scale)


@causal_or_not
def test_scores_that_grow_from_block_to_block(causal):
    """What was summed before a larger score came has to shrink."""
    query, key, value = operands(40, 100)
    key *= torch.linspace(0.1, 30, 100, device=DEVICE)[:, None]
    check((query.abs(), key.abs(), value), causal)


def test_log_sum_exp():
    query, key, value = operands(40, 70)
    _, lse = namespace.attention(query, key, value, False, 0.3)
    expected = torch.logsumexp(0.3 * query @ key.transpose(-1, -2), -1)
    torch.testing.assert_close(lse, expected)


def test_two_runs_agree():
    tensors, grad = operands(70, 70), heads(70)
    first, second = (results(ops.attention, tensors, grad) for _ in range(2))
    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_no_gradient_for_what_needs_none(wanted):
    tensors = operands(5, 6)
    tensors[wanted].requires_grad_()
    ops.attention(*tensors).sum().backward()
    assert [t.grad is not None for t in tensors] == [i == wanted for i in range(3)]


def test_no_gradient_where_none_comes():
    tensors = [t.requires_grad_() for t in operands(5, 6)]
    NoGradient.apply(ops.attention(*tensors)).sum().backward()
    assert [t.grad for t in tensors] == [None] * 3


LAYOUTS = {
    "positions first": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "padded rows": lambda x: torch.cat((x, x), -1)[..., : x.shape[-1]],
    "every other row": lambda x: x.repeat_interleave(2, 2)[:, :, ::2],
    "one head for all": lambda x: x[:, :1].expand(x.shape),
    "one batch": lambda x: x[:1].as_strided((1, *x.shape[1:]), (9, *x.stride()[1:])),
}
COPIED = {
    "odd address": lambda x: torch.cat((x, x), -1)[..., 1 : x.shape[-1] + 1],
    "odd rows": lambda x: torch.cat((x, x[..., :3]), -1)[..., : x.shape[-1]],
    "dims apart": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "one number": lambda x: x[:1, :1, :1, :1].expand(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS | COPIED)
def test_layouts(layout):
    change = (LAYOUTS | COPIED)[layout]
    tensors = [change(t) for t in operands(40, 40)]
    in_place = readable(tensors[1]) is tensors[1]
    assert in_place == (layout in LAYOUTS and layout != "one batch")
    check(tensors, causal=True)


def test_results_have_the_layout_of_the_inputs():
    positions_first = LAYOUTS["positions first"]
    tensors = [positions_first(t) for t in operands(5, 6)]
    for result, like in zip(
        results(ops.attention, tensors, heads(5)), (tensors[0], *tensors), strict=True
    ):
        assert result.stride() == like.stride() == empty_in_order(like).stride()


def test_a_gradient_of_any_layout():
    tensors = operands(33, 33)
    ones = torch.ones(2, 2, 33, 16, device=DEVICE)
    expected = results(ops.attention, tensors, ones)
    for grad in (ones[:1, :1, :1, :1].expand(ones.shape), ones.mT.contiguous().mT):
        assert all(map(torch.equal, results(ops.attention, tensors, grad), expected))


@pytest.mark.parametrize("lengths", [(0, 5), (5, 0), (0, 0)], ids=str)
def test_empty(lengths):
    tensors, grad = operands(*lengths), heads(lengths[0])
    ours = results(ops.attention, tensors, grad)
    theirs = results(F.scaled_dot_product_attention, tensors, grad)
    for actual, expected in zip(ours, theirs, strict=True):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize(
    "layout", [pytest.param("dense", marks=pytest.mark.all), "positions first"]
)
def test_opcheck(layout):
    change = LAYOUTS.get(layout, torch.clone)
    tensors = [change(t).requires_grad_() for t in operands(5, 6)]
    torch.library.opcheck(namespace.attention.default, (*tensors, True, 0.25))
    tensors = [t.detach() for t in tensors]
    output, lse = namespace.attention(*tensors, True, 0.25)
    inputs = (output, *tensors, output, lse, True, 0.25)
    torch.library.opcheck(namespace.attention_backward.default, inputs)


@pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=needs_gpu)]
)
def test_compiles_without_a_graph_break_for_all_lengths(backend):
    torch.compiler.reset()
    graphs = CompileCounterWithBackend(backend)
    compiled = torch.compile(
        ops.attention, fullgraph=True, backend=graphs, dynamic=True
    )
    for length in (4, 33, 40):
        tensors, grad = operands(length, length), heads(length)
        for actual, expected in zip(
            results(compiled, tensors, grad, causal=True),
            results(ops.attention, tensors, grad, causal=True),
            strict=True,
        ):
            torch.testing.assert_close(actual, expected)
    assert graphs.frame_count == 1


def test_a_second_derivative_is_refused():
    query, key, value = (t.requires_grad_() for t in operands(3, 3))
    loss = ops.attention(query, key, value).square().sum()
    (first,) = torch.autograd.grad(loss, query, create_graph=True)
    with pytest.raises(RuntimeError, match=r"opbook_triton\.attention_backward"):
        first.sum().backward()


def changed(place, change):
    tensors = operands(3, 5)
    tensors[place] = change(tensors[place])
    return tensors


@pytest.mark.parametrize(
    ("tensors", "error", "message"),
    [
        (lambda: changed(0, lambda x: x[0]), RuntimeError, r"query .* \[2, 3, 16\]"),
        (lambda: changed(1, lambda x: x[0]), RuntimeError, r"key .* \[2, 5, 16\]"),
        (
            lambda: changed(1, lambda x: x[:1]),
            RuntimeError,
            r"key of shape \[2, 2, 5, 16\], but got \[1, 2, 5, 16\]",
        ),
        (
            lambda: changed(1, lambda x: x[:, :1]),
            RuntimeError,
            r"key of shape \[2, 2, 5, 16\], but got \[2, 1, 5, 16\]",
        ),
        (
            lambda: changed(2, lambda x: x[:, :, 1:]),
            RuntimeError,
            r"value of shape \[2, 2, 5, 16\], but got \[2, 2, 4, 16\]",
        ),
        (
            lambda: changed(2, torch.Tensor.half),
            RuntimeError,
            "value of torch.float32, but got torch.float16",
        ),
        (
            lambda: changed(0, torch.Tensor.double),
            NotImplementedError,
            "query must be fp16, bf16 or fp32, but got torch.float64",
        ),
        (
            lambda: operands(3, 5, 24),
            NotImplementedError,
            r"dim of 16, 32, 64, 128 or 256, but got \[2, 2, 3, 24\]",
        ),
        (lambda: [None] * 3, TypeError, "query must be a Tensor, but got NoneType"),
    ],
)
def test_what_does_not_fit_is_refused(tensors, error, message):
    tensors = tensors()
    with pytest.raises(error, match=rf"^opbook\.triton\.attention: .*{message}"):
        ops.attention(*tensors)


@pytest.mark.parametrize(
    ("scale", "error"),
    [
        (0.0, ValueError),
        (-1.0, ValueError),
        (float("inf"), ValueError),
        (float("nan"), ValueError),
        ("1", TypeError),
        (torch.tensor(0.5, requires_grad=True), TypeError),
    ],
    ids=str,
)
def test_a_scale_that_the_kernel_cannot_use_is_refused(scale, error):
    tensors = operands(3, 3)
    with pytest.raises(error, match=r"opbook\.triton\.attention: scale must be"):
        ops.attention(*tensors, scale=scale)


@pytest.mark.parametrize(
    ("place", "change", "name"),
    [
        (0, lambda x: x[:, :, 1:], "grad of shape"),
        (0, torch.Tensor.half, "grad of torch.float32"),
        (4, lambda x: x[:, :, 1:], "output of shape"),
        (5, lambda x: x[..., None], "lse of shape"),
        (5, torch.Tensor.half, "lse of torch.float32"),
    ],
)
def test_gradients_that_do_not_fit_are_refused(place, change, name):
    query, key, value = operands(3, 5)
    inputs = [query, query, key, value, query, query[..., 0]]
    inputs[place] = change(inputs[place])
    with pytest.raises(RuntimeError, match=f"attention_backward: expected {name}"):
        namespace.attention_backward(*inputs, False, 0.25)


@needs_gpu
@causal_or_not
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("dim", [64, 128])
def test_many_blocks(dim, dtype, causal):
    check(operands(1000, 1500, dim, dtype), causal)


@needs_gpu
def test_more_elements_than_an_int_holds():
    query = torch.randn(1, 1, 128, 128, device="cuda", dtype=torch.float16)
    keys = torch.zeros(1, 2**24 + 64, 2, 128, device="cuda", dtype=torch.float16)
    keys = keys.transpose(1, 2)[:, :1]  # the last row begins past 2**32 elements
    keys[:, :, -1] = 1
    values = keys.clone(memory_format=torch.preserve_format)
    expected = F.scaled_dot_product_attention(query, keys, values, scale=8.0)
    ours = ops.attention(query, keys, values, scale=8.0)
    torch.testing.assert_close(ours, expected)

"""opbook.linear_gelu against F.gelu(F.linear(...)) and against fp64."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import opbook
from called import Called, NoGradient
from eager import TOLERANCES, Sample, assert_close, assert_same_outcome, outcome
from emulated import build
from gpu import needs_emulator, needs_gpu, needs_two_gpus, on_a_busy_stream
from layouts import FEW_LAYOUTS, LAYOUTS, layouts

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
HALF = DTYPES[:2]
FORMS = ("none", "tanh")
NAN, INF = float("nan"), float("inf")
OPS = {
    "linear_gelu": torch.ops.opbook.linear_gelu.default,
    "for_backward": torch.ops.opbook.linear_gelu_for_backward.default,
}


def eager(input, weight, bias=None, approximate="none"):
    """Ask PyTorch."""
    return F.gelu(F.linear(input, weight, bias), approximate=approximate)


SAMPLES = {
    "linear_gelu": Sample(
        eager,
        input=("rows", "hidden"),
        weight=("features", "hidden"),
        bias=("features",),
    )
}


def assert_like_eager(input, weight, bias=None, approximate="none"):
    """Same as eager; where cuBLASLt fuses, eager's extra rounding is allowed for."""
    expected = eager(input, weight, bias, approximate)
    actual = opbook.linear_gelu(input, weight, bias, approximate)
    assert actual.is_contiguous()
    if actual.is_cuda and actual.dtype in HALF and approximate == "tanh":
        # Eager rounds the pre-activation, to half a unit in its last place.
        rtol, atol = TOLERANCES[actual.dtype]
        if actual.numel():
            preactivation = F.linear(input, weight, bias)
            atol += torch.finfo(actual.dtype).eps * preactivation.abs().max().item()
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)
    else:
        assert_close(actual, expected)


def example(device, dtype=torch.float32, shape=(6, 40), out_features=24, grad=False):
    """Input, weight and bias, with pre-activations of about unit size."""
    scale = max(1, shape[-1]) ** -0.5
    tensors = (
        torch.randn(shape, device=device),
        torch.randn(out_features, shape[-1], device=device) * scale,
        torch.randn(out_features, device=device),
    )
    return tuple(tensor.to(dtype).requires_grad_(grad) for tensor in tensors)


SIZES = ((1, 1, 1), (5, 33, 17), (64, 256, 128), (3, 4, 4097))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("approximate", FORMS)
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_equals_eager(device, dtype, approximate, with_bias, grad, sizes):
    rows, in_features, out_features = sizes
    input, weight, bias = example(
        device, dtype, (rows, in_features), out_features, grad=grad
    )
    assert_like_eager(input, weight, bias if with_bias else None, approximate)


SHAPES = ((), (40,), (0,), (3, 40), (0, 40), (3, 0), (0, 0), (2, 3, 40), (2, 0, 40))


@pytest.mark.parametrize("shape", [*SHAPES, (2, 3, 0), (2, 3, 4, 40)], ids=str)
@pytest.mark.parametrize("out_features", [0, 1, 24])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("approximate", FORMS)
def test_any_rank_or_the_same_error(device, shape, out_features, dtype, approximate):
    input = torch.randn(shape, device=device, dtype=dtype)
    in_features = shape[-1] if shape else 1
    _, weight, bias = example(device, dtype, (1, in_features), out_features)
    for args in ((input, weight, None), (input, weight, bias)):
        expected = outcome(eager, *args, approximate)
        if isinstance(expected, Exception):
            actual = outcome(opbook.linear_gelu, *args, approximate)
            assert_same_outcome(actual, expected)
        else:
            assert_like_eager(*args, approximate)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("approximate", FORMS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_of_input(device, layout, dtype, approximate):
    input = layouts(device, dtype)[layout]
    _, weight, bias = example(device, dtype, input.shape)
    assert_like_eager(input, weight, None, approximate)
    assert_like_eager(input, weight, bias, approximate)


WEIGHTS = {
    "transposed": lambda w: w.t().contiguous().t(),
    "padded": lambda w: F.pad(w, (0, 8))[:, :-8],
    "padded_by_one": lambda w: F.pad(w, (0, 1))[:, :-1],
    "every_second_row": lambda w: w.repeat_interleave(2, 0)[::2],
    "every_second_column": lambda w: w.repeat_interleave(2, 1)[:, ::2],
    "unaligned": lambda w: F.pad(w.flatten(), (1, 0))[1:].view_as(w),
    "expanded_out": lambda w: w[:1].expand_as(w),
    "expanded_in": lambda w: w[:, :1].expand_as(w),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("approximate", FORMS)
@pytest.mark.parametrize("layout", WEIGHTS)
def test_any_layout_of_weight_and_bias(device, layout, dtype, approximate):
    input, weight, bias = example(device, dtype)
    weight = WEIGHTS[layout](weight)
    assert_like_eager(input, weight, None, approximate)
    assert_like_eager(input, weight, bias, approximate)
    assert_like_eager(input, weight, bias.repeat_interleave(2)[::2], approximate)
    assert_like_eager(input, weight, F.pad(bias, (1, 0))[1:], approximate)
    assert_like_eager(input, weight, bias[:1].expand_as(bias), approximate)


@pytest.mark.parametrize("input_dtype", DTYPES, ids=str)
@pytest.mark.parametrize("other", [*DTYPES, torch.int32, torch.complex64], ids=str)
@pytest.mark.parametrize("which", [1, 2], ids=["weight", "bias"])
@pytest.mark.parametrize("shape", [(40,), (6, 40), (2, 3, 40)], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_mixed_dtypes(device, input_dtype, other, which, shape, transposed):
    args = list(example(device, input_dtype, shape))
    args[which] = args[which].detach().to(other)
    if transposed and len(shape) == 3:
        args[0] = args[0].transpose(0, 1)  # then eager adds the bias with promotion
    assert_same_outcome(outcome(opbook.linear_gelu, *args), outcome(eager, *args))


OTHER_DTYPES = (torch.int32, torch.int64, torch.uint8, torch.bool, torch.complex64)


@pytest.mark.parametrize("dtype", [*OTHER_DTYPES, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("rows", [0, 6])
def test_other_dtypes(device, dtype, rows):
    input, weight, bias = (
        tensor.to(dtype) for tensor in example(device, shape=(rows, 40))
    )
    for args in ((input, weight), (input, weight, bias)):
        assert_same_outcome(outcome(opbook.linear_gelu, *args), outcome(eager, *args))


# The errors of eager, and what eager accepts beyond a weight matrix and a bias vector.
ODD_CALLS = {
    "weight_1d": lambda x, w, b: (x, w[0]),
    "weight_1d_bias_0d": lambda x, w, b: (x, w[0], b[0]),
    "weight_1d_bias": lambda x, w, b: (x, w[0], b[:1]),
    "weight_1d_short": lambda x, w, b: (x, w[0, :4]),
    "weight_0d": lambda x, w, b: (x, w[0, 0]),
    "weight_3d": lambda x, w, b: (x, w[None]),
    "weight_of_other_in_features": lambda x, w, b: (x, w[:, :-1]),
    "weight_not_transposed": lambda x, w, b: (x, w.t().contiguous()),
    "bias_too_short": lambda x, w, b: (x, w, b[:-1]),
    "bias_of_one": lambda x, w, b: (x, w, b[:1]),
    "bias_of_none": lambda x, w, b: (x, w, b[:0]),
    "bias_0d": lambda x, w, b: (x, w, b[0]),
    "bias_row": lambda x, w, b: (x, w, b[None]),
    "bias_column": lambda x, w, b: (x, w, x[..., :1]),
    "bias_full": lambda x, w, b: (x, w, F.linear(x, w)),
    "bias_flat": lambda x, w, b: (x, w, F.linear(x, w).reshape(-1, len(b))),
    "bias_of_other_shape": lambda x, w, b: (x, w, b.new_ones(7, 3)),
    "bias_on_meta": lambda x, w, b: (x, w, b.to("meta")),
    "all_on_meta_mismatch": lambda x, w, b: (x.to("meta"), w[:, 1:].to("meta")),
    "input_list": lambda x, w, b: (x.tolist(), w, b),
    "weight_list": lambda x, w, b: (x, w.tolist(), b),
    "weight_none": lambda x, w, b: (x, None, b),
    "bias_list": lambda x, w, b: (x, w, b.tolist()),
    "bias_number": lambda x, w, b: (x, w, 1.0),
    "sparse_input": lambda x, w, b: (x.to_sparse(), w, b),
    "sparse_weight": lambda x, w, b: (x, w.to_sparse(), b),
    "csr_input": lambda x, w, b: (torch.atleast_2d(x).to_sparse_csr(), w, b),
    "csr_weight": lambda x, w, b: (x, w.to_sparse_csr(), b),
    "approximate_other": lambda x, w, b: (x, w, b, "sigmoid"),
    "approximate_case": lambda x, w, b: (x, w, b, "Tanh"),
    "approximate_empty": lambda x, w, b: (x, w, b, ""),
    "approximate_none": lambda x, w, b: (x, w, b, None),
    "approximate_bool": lambda x, w, b: (x, w, b, True),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("shape", [(40,), (6, 40), (2, 3, 40)], ids=str)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("call", ODD_CALLS)
def test_odd_call_does_what_eager_does(device, call, grad, shape):
    tensors = example(device, shape=shape, grad=grad)
    args = ODD_CALLS[call](*(tensor.detach() for tensor in tensors))
    args = [
        arg.requires_grad_(grad) if isinstance(arg, torch.Tensor) else arg
        for arg in args
    ]
    expected, actual = outcome(eager, *args), outcome(opbook.linear_gelu, *args)
    assert_same_outcome(actual, expected)
    assert_like_eager(*tensors)


@pytest.mark.parametrize("on_meta", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)], ids=str)
@pytest.mark.parametrize("rows", [0, 6])
def test_tensors_with_and_without_memory_are_an_error(device, on_meta, rows):
    args = [
        tensor.to("meta") if i in on_meta else tensor
        for i, tensor in enumerate(example(device, shape=(rows, 40)))
    ]
    # Eager (seen in torch 2.13) returns memory nobody wrote for some of these.
    with pytest.raises(RuntimeError, match=r"opbook::linear_gelu: .* on the device of"):
        opbook.linear_gelu(*args)


@needs_gpu
@pytest.mark.parametrize("on_gpu", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)], ids=str)
@pytest.mark.parametrize("rows", [0, 6])
def test_tensors_on_two_devices(on_gpu, rows):
    args = [
        tensor.cuda() if i in on_gpu else tensor
        for i, tensor in enumerate(example("cpu", shape=(rows, 40)))
    ]
    assert_same_outcome(outcome(opbook.linear_gelu, *args), outcome(eager, *args))


@pytest.mark.parametrize("where", ["cpu", "meta"])
def test_errors_name_operator_argument_and_values(where):
    def ones(*shape, dtype=torch.float32):
        return torch.ones(shape, device=where, dtype=dtype)

    name = "opbook::linear_gelu: .*"
    for words, args in {
        r"input .*\[\]": (ones(), ones(4, 5)),
        r"weight .*5\].*\[3, 5\].*\[4, 6\]": (ones(3, 5), ones(4, 6)),
        r"weight .*\[1, 4, 5\]": (ones(3, 5), ones(1, 4, 5)),
        r"bias .*\[4\].*\[4, 5\].*\[3\]": (ones(3, 5), ones(4, 5), ones(3)),
        r"weight .*dtype": (ones(3, 5), ones(4, 5, dtype=torch.float64)),
        r"bias .*dtype": (ones(3, 5), ones(4, 5), ones(4, dtype=torch.float64)),
    }.items():
        with pytest.raises(RuntimeError, match=name + words):
            opbook.linear_gelu(*args)
    with pytest.raises(NotImplementedError, match=r"opbook.linear_gelu: input.*int32"):
        opbook.linear_gelu(torch.ones(3, dtype=torch.int32), ones(4, 3))
    with pytest.raises(RuntimeError, match=r"opbook.linear_gelu: .*approximate.*'erf'"):
        opbook.linear_gelu(ones(3, 5), ones(4, 5), approximate="erf")
    with pytest.raises(TypeError, match=r"opbook.linear_gelu: approximate.*int"):
        opbook.linear_gelu(ones(5), ones(4, 5), approximate=1)
    with pytest.raises(TypeError, match=r"opbook.linear_gelu: bias.*float"):
        opbook.linear_gelu(ones(5), ones(4, 5), 1.0)


@pytest.mark.parametrize("op", OPS)
def test_the_operator_itself_rejects_what_the_interface_rejects(device, op):
    input = torch.ones(3, 4, device=device, dtype=torch.int32)
    for rows in (input, input[:0]):
        with pytest.raises(RuntimeError, match=r"opbook::linear_gelu: .*input.*Int"):
            OPS[op](rows, input)
    for odd in (input[0].float(), input.float()[None]):
        with pytest.raises(RuntimeError, match=r"opbook::linear_gelu: .*weight"):
            OPS[op](input.float(), odd)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("approximate", FORMS)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("features", [1, 64])  # cuBLASLt's epilogue needs more than one
def test_nan_inf_zero_and_the_tails(device, dtype, approximate, grad, features):
    # cuBLASLt multiplies z by 1 + tanh before it halves: the type's maximum overflows.
    largest = torch.finfo(dtype).max / 4
    values = [NAN, INF, -INF, largest, -largest, 0.0, 1e-3, -1e-3, 1, -1, 3, -3, -5, -9]
    input = torch.zeros(len(values), features, device=device, dtype=dtype)
    input[:, 0] = torch.tensor(values)
    weight = input.new_ones(features, features, requires_grad=grad)
    actual = opbook.linear_gelu(input, weight, None, approximate)
    exact = eager(input.double(), weight.double(), None, approximate)
    # Eager's own tail, 1 + erf(z / sqrt(2)), has an absolute error.
    rtol, atol = TOLERANCES[dtype]
    torch.testing.assert_close(
        actual.double(), exact, rtol=rtol, atol=atol, equal_nan=True
    )


def mean_error(actual, exact):
    return (actual.double() - exact).abs().mean().item()


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("approximate", FORMS)
@pytest.mark.parametrize("grad", [False, True])
def test_half_precision_error_is_no_worse_than_eagers(device, dtype, approximate, grad):
    args = example(device, dtype, (128, 512), 1024, grad=grad)
    exact = eager(*(tensor.double() for tensor in args), approximate)
    ours = mean_error(opbook.linear_gelu(*args, approximate), exact)
    assert ours <= 1.001 * mean_error(eager(*args, approximate), exact)


def gradients(function, args, approximate, grad_output):
    leaves = [tensor.detach().requires_grad_() for tensor in args]
    output = function(*leaves, approximate)
    output.backward(grad_output.to(output.dtype))
    return [leaf.grad for leaf in leaves]


def first_of(op):
    """The operator itself, without the interface; of two results the first."""

    def function(input, weight, bias=None, approximate="none"):
        result = op(input, weight, bias, approximate == "tanh")
        return result if isinstance(result, torch.Tensor) else result[0]

    return function


DIFFERENTIABLE = {
    "interface": opbook.linear_gelu,
    "linear_gelu": first_of(OPS["linear_gelu"]),
    "for_backward": first_of(OPS["for_backward"]),
}


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("approximate", FORMS)
@pytest.mark.parametrize("function", DIFFERENTIABLE)
def test_half_precision_gradients_are_no_worse_than_eagers(
    device, dtype, approximate, function
):
    args = example(device, dtype, (128, 512), 1024)
    grad_output = torch.randn(128, 1024, device=device, dtype=dtype)
    doubles = [tensor.double() for tensor in args]
    exact = gradients(eager, doubles, approximate, grad_output)
    ours = gradients(DIFFERENTIABLE[function], args, approximate, grad_output)
    theirs = gradients(eager, args, approximate, grad_output)
    for mine, its, truth in zip(ours, theirs, exact, strict=True):
        assert mine.dtype == dtype
        assert mean_error(mine, truth) <= 1.001 * mean_error(its, truth)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("approximate", FORMS)
@pytest.mark.parametrize("function", DIFFERENTIABLE)
def test_gradients_equal_eagers(device, layout, approximate, function):
    input = layouts(device, torch.float64)[layout]
    args = (input, *example(device, torch.float64, input.shape)[1:])
    grad_output = torch.randn_like(eager(*args))
    actual = gradients(DIFFERENTIABLE[function], args, approximate, grad_output)
    expected = gradients(eager, args, approximate, grad_output)
    for mine, its in zip(actual, expected, strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("needed", [(i,) for i in range(3)] + [(0, 1), (0, 2), (1, 2)])
@pytest.mark.parametrize("function", DIFFERENTIABLE)
def test_only_the_gradients_asked_for(device, needed, function):
    args = example(device)
    for i in needed:
        args[i].requires_grad_()
    loss = DIFFERENTIABLE[function](*args).sum()
    with Called() as called:
        loss.backward()
    assert [arg.grad is not None for arg in args] == [i in needed for i in range(3)]
    recomputed = function == "linear_gelu"  # one product more
    assert called.names.count("aten::mm") == (0 in needed) + (1 in needed)
    assert called.names.count("aten::addmm") == recomputed
    assert called.names.count("aten::sum") == (2 in needed)


def test_saves_what_the_gradients_need_and_nothing_else(device):
    input, weight, bias = example(device)
    saved = []

    def pack(tensor):
        saved.append(tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        for trained, shapes in {
            input: [(24, 40), (6, 24)],
            weight: [(6, 40), (6, 24)],
            bias: [(6, 24)],
        }.items():
            trained.requires_grad_()
            opbook.linear_gelu(input, weight, bias)
            trained.requires_grad_(False)
            assert saved == shapes
            saved.clear()
        opbook.linear_gelu(input, weight, bias)
    assert saved == []


def test_no_grad_runs_the_operator_that_keeps_nothing(device):
    args = example(device, grad=True)
    with torch.no_grad(), torch.profiler.profile() as profile:
        assert opbook.linear_gelu(*args).grad_fn is None
    names = {event.name for event in profile.events()}
    assert "opbook::linear_gelu" in names
    assert "opbook::linear_gelu_for_backward" not in names


# [gradcheck]
@pytest.mark.parametrize("approximate", FORMS)
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (0, 5), (3, 0)], ids=str)
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("function", DIFFERENTIABLE)
def test_gradcheck(device, approximate, shape, with_bias, function):
    input, weight, bias = example(device, torch.float64, shape, 4, grad=True)
    args = (input, weight, bias if with_bias else None, approximate)
    assert torch.autograd.gradcheck(DIFFERENTIABLE[function], args)
    assert torch.autograd.gradgradcheck(DIFFERENTIABLE[function], args)


# [/gradcheck]


def test_the_preactivation_has_a_gradient_of_its_own(device):
    args = example(device, torch.float64, (3, 5), 4, grad=True)
    op = OPS["for_backward"]
    assert torch.autograd.gradcheck(op, args)
    assert torch.autograd.gradgradcheck(op, args)
    assert torch.autograd.gradcheck(lambda *args: op(*args)[1], args)


@pytest.mark.parametrize("function", DIFFERENTIABLE)
def test_no_gradient_comes_back_as_none(device, function):
    args = example(device, grad=True)
    NoGradient.apply(DIFFERENTIABLE[function](*args)).sum().backward()
    assert [arg.grad for arg in args] == [None] * 3


def test_gradients_in_batches_equal_eagers(device):
    args = example(device, torch.float64, grad=True)

    def batch_of_gradients(function):
        losses = function(*args).sum() * torch.ones(3, device=device)
        units = torch.eye(3, device=device)
        return torch.autograd.grad(losses, args, units, is_grads_batched=True)

    got, want = map(batch_of_gradients, (opbook.linear_gelu, eager))
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("compiled", [False, True])
def test_autocast_does_what_it_does_to_eager(device, dtype, compiled):
    input = torch.randn(3, 8, device=device, dtype=dtype)
    weight = torch.randn(4, 8, device=device, requires_grad=True)

    def output_and_gradient(function):
        if compiled:
            function = torch.compile(function, backend="aot_eager", fullgraph=True)
        with torch.autocast(device, torch.bfloat16):
            output = function(input, weight)
        return output, *torch.autograd.grad(output.float().sum(), weight)

    got, want = map(output_and_gradient, (opbook.linear_gelu, eager))
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("approximate", FORMS)
def test_second_gradient_equals_eagers(device, approximate):
    def penalty_gradients(function):
        leaves = [tensor.detach().requires_grad_() for tensor in args]
        output = function(*leaves, approximate)
        first = torch.autograd.grad(output.square().sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), leaves)

    args = example(device, torch.float64)
    expected = penalty_gradients(eager)
    for mine, its in zip(penalty_gradients(opbook.linear_gelu), expected, strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("layout", FEW_LAYOUTS)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("op", OPS)
def test_opcheck(device, layout, op, grad):
    input = layouts(device)[layout]
    _, weight, bias = example(device, shape=input.shape, grad=grad)
    input.requires_grad_(grad)
    for args in ((input, weight), (input, weight, bias, True)):
        torch.library.opcheck(OPS[op], args)


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("op", OPS)
def test_opcheck_of_strided_weights(device, weight, op):
    input, dense, bias = example(device, torch.float16)
    torch.library.opcheck(OPS[op], (input, WEIGHTS[weight](dense), bias, True))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("out_features", [0, 1, 24])
@pytest.mark.parametrize("op", OPS)
def test_fake_strides_equal_real_strides(device, layout, op, out_features):
    input = layouts(device, torch.float16)[layout]
    args = (input, *example(device, torch.float16, input.shape, out_features)[1:])
    with torch._subclasses.FakeTensorMode() as mode:
        fake = OPS[op](*map(mode.from_tensor, args), True)
    real = OPS[op](*args, True)
    results = (fake, real) if op == "for_backward" else ((fake,), (real,))
    for described, made in zip(*results, strict=True):
        assert described.shape == made.shape
        assert described.stride() == made.stride()
        assert described.dtype == made.dtype


def assert_compiled_equals_eager(device, backend, grad):
    def block(input, weight, bias):
        return torch.sigmoid(opbook.linear_gelu(input, weight, bias, "tanh")) * 2

    compiled = torch.compile(block, fullgraph=True, dynamic=True, backend=backend)
    for rows, width in ((6, 40), (9, 24)):  # sizes are symbols: compiled once
        args = example(device, shape=(rows, width), grad=grad)
        actual, expected = compiled(*args), block(*args)
        torch.testing.assert_close(actual, expected)
        if grad:
            actual = torch.autograd.grad(actual.sum(), args)
            expected = torch.autograd.grad(expected.sum(), args)
            torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("grad", [False, True])
def test_compiles_without_a_graph_break(device, grad):
    assert_compiled_equals_eager(device, "aot_eager", grad)


@pytest.mark.all
def test_compiles_with_inductor_forward_and_backward(device):
    assert_compiled_equals_eager(device, "inductor", grad=True)


@pytest.fixture(scope="module", params=[32, 64], ids="warp_{}".format)
def emulated_gpu(request, tmp_path_factory):
    """The GPU launcher, run on the CPU and checked at every access."""
    source = Path(__file__).parents[1] / "csrc" / "linear_gelu" / "linear_gelu.cu"
    return build(source, request.param, tmp_path_factory.mktemp("emulated"))


@needs_emulator
@pytest.mark.parametrize("order", ["ascending", "descending", "random"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("approximate", FORMS)
@pytest.mark.parametrize("numel", [1, 7, 8, 257, 2048, 4097])
@pytest.mark.parametrize("offset", [0, 1])
def test_emulated_kernel(emulated_gpu, order, dtype, approximate, numel, offset):
    input = (2 * torch.randn(numel + offset, dtype=dtype))[offset:]
    expected = F.gelu(input, approximate=approximate)
    output = torch.full_like(input, NAN)
    for written in (output, input):  # then in place
        arguments = (input, written, numel, approximate == "tanh")
        emulated_gpu.launch("launch_linear_gelu", *arguments, order=order)
        assert_close(written, expected)


# A product over nothing is the bias in each row, and costs the time of a copy.
LAST_ROW_OF_A_LARGE_TENSOR = """
import sys, torch, opbook
rows, features = 65537, 32768  # 2^31 + 32768 elements of output
input = torch.zeros(rows, 0, dtype=torch.bfloat16, device=sys.argv[1])
bias = torch.randn(features).to(input)
with torch.no_grad():
    output = opbook.linear_gelu(input, input.new_zeros(features, 0), bias, sys.argv[2])
expected = torch.nn.functional.gelu(bias, approximate=sys.argv[2])
for row in (*output[:: rows // 8], output[-1]):
    torch.testing.assert_close(row, expected)
"""


def free_bytes(device: str) -> int:
    """Memory left on the device, so that a large test is skipped and not killed."""
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.all  # it fills 8 GiB
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for free memory")
@pytest.mark.parametrize("approximate", ["tanh"])  # both forms index alike
def test_more_than_2_to_the_31_elements(device, approximate):
    if free_bytes(device) < 12 * 2**30:
        pytest.skip("needs 12 GiB of free memory")
    # In a process of its own: a wrong index ends in a segmentation fault.
    command = [sys.executable, "-c", LAST_ROW_OF_A_LARGE_TENSOR, device, approximate]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr[-2000:]


def kernels_of(function) -> list[str]:
    """Names of the GPU kernels that a call launches."""
    function()
    torch.cuda.synchronize()
    with torch.profiler.profile() as profile:
        function()
        torch.cuda.synchronize()
    return [
        event.name
        for event in profile.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    ]


@needs_gpu
@pytest.mark.skipif(torch.version.hip is not None, reason="cuBLASLt is NVIDIA's")
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_cublaslt_applies_the_tanh_form(dtype):
    args = example("cuda", dtype, (256, 512), 1024)
    tanh, erf = (
        kernels_of(functools.partial(opbook.linear_gelu, *args, form))
        for form in ("tanh", "none")
    )
    assert tanh
    # Neither a kernel of ours nor one of ATen's: the product's own epilogue does it.
    assert not [name for name in tanh if "opbook" in name or "at::native" in name]
    assert len([name for name in erf if "opbook" in name]) == 1


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("approximate", FORMS)
@pytest.mark.parametrize("grad", [False, True])
def test_runs_on_the_current_stream(dtype, approximate, grad):
    late, weight, bias = example("cuda", dtype, (256, 512), 1024, grad=grad)

    def call(input):
        return opbook.linear_gelu(input, weight, bias, approximate)

    torch.testing.assert_close(on_a_busy_stream(call, late), call(late))


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("approximate", FORMS)
def test_replays_in_a_cuda_graph(dtype, approximate):
    input, weight, bias = example("cuda", dtype, (64, 256), 128)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # warms up, as torch.cuda.graph asks for
        opbook.linear_gelu(input, weight, bias, approximate)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = opbook.linear_gelu(input, weight, bias, approximate)
    input.copy_(torch.randn_like(input))
    graph.replay()
    expected = opbook.linear_gelu(input, weight, bias, approximate)
    torch.testing.assert_close(output, expected)


@needs_two_gpus
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("approximate", FORMS)
def test_runs_on_the_device_of_its_input(dtype, approximate):
    args = example("cuda:1", dtype)
    with torch.cuda.device(0):
        assert_like_eager(*args, approximate)
        assert_like_eager(*(arg.requires_grad_() for arg in args), approximate)

"""Gradients of opbook.rms_norm, and its in-place form, against eager PyTorch."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import opbook
from called import Called, NoGradient
from eager import TOLERANCES, assert_close, assert_same_outcome, outcome
from gpu import needs_gpu
from layouts import FEW_LAYOUTS, LAYOUTS, layouts

# The default depends on the dtype, and these tests compare fp16 with fp64.
EPS = torch.finfo(torch.float32).eps
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
OPERATORS = {"interface": opbook.rms_norm, "operator": torch.ops.opbook.rms_norm}


def eager(input, weight=None, eps=None):
    """Ask PyTorch: the shape argument is always the last dimension."""
    return F.rms_norm(input, input.shape[-1:], weight, eps)


def exact_gradients(grad, input, weight):
    """The truth, in fp64, with the eps that fp32 sums take by default."""
    wide = (t.double() for t in (grad, input, weight))
    return gradients(lambda x, w: eager(x, w, EPS), *wide)


def gradients(function, grad, *tensors):
    """Gradients of the tensors, which keep their strides."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    return torch.autograd.grad(function(*leaves), leaves, grad)


def check_against_exact(grad, input, weight):
    rtol, atol = TOLERANCES[input.dtype]
    actual = gradients(lambda x, w: opbook.rms_norm(x, w, EPS), grad, input, weight)
    exact = exact_gradients(grad, input, weight)
    for got, want in zip(actual, exact, strict=True):
        # Sums of many terms cancel: bound the error by the largest element.
        atol = max(4 * rtol * want.abs().max().item(), atol)
        torch.testing.assert_close(got.double(), want, rtol=4 * rtol, atol=atol)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("hidden", [2, 3, 24, 128, 1024, 4096, 4097])
@pytest.mark.parametrize("rows", [1, 5, 300])
def test_equals_eager(device, dtype, hidden, rows):
    input, grad = torch.randn(2, rows, hidden, device=device, dtype=dtype)
    weight = torch.randn(hidden, device=device, dtype=dtype)
    check_against_exact(grad, input, weight)


@pytest.mark.parametrize("dtype", DTYPES[:-1], ids=str)
def test_one_column_is_as_close_as_eager(device, dtype):
    # Two terms cancel but for eps: what is left is mostly rounding, also in eager.
    input, grad = torch.randn(2, 300, 1, device=device, dtype=dtype)
    weight = torch.randn(1, device=device, dtype=dtype)
    exact = exact_gradients(grad, input, weight)

    def errors(function):
        found = gradients(lambda x, w: function(x, w, EPS), grad, input, weight)
        pairs = zip(found, exact, strict=True)
        return [(got.double() - want).abs().max() for got, want in pairs]

    for ours, theirs in zip(errors(opbook.rms_norm), errors(eager), strict=True):
        assert ours <= 16 * theirs


@needs_gpu
@pytest.mark.parametrize(("rows", "hidden"), [(64, 4096), (300, 2048), (8, 32768)])
def test_no_chunk_is_read_before_it_is_written(rows, hidden):
    input, grad = torch.randn(2, rows, hidden, device="cuda")
    weight = torch.randn(hidden, device="cuda")
    for _ in range(10):
        # Freed, it is the memory that backward takes for its chunks.
        not_written = [torch.full_like(input, torch.nan) for _ in range(8)]
        del not_written
        torch.cuda._sleep(5_000_000)  # meanwhile both kernels are launched
        check_against_exact(grad, input, weight)


# The longest row that a cluster of blocks holds has 16,384 vectors of 8 elements.
@pytest.mark.parametrize(
    ("rows", "hidden"),
    [(150, 24576), (150, 24577), (600, 2881), (5, 8 * 16384), (5, 8 * 16385)],
)
def test_long_rows(device, rows, hidden):
    input, grad = torch.randn(2, rows, hidden, device=device, dtype=torch.bfloat16)
    weight = torch.randn(hidden, device=device, dtype=torch.bfloat16)
    check_against_exact(grad, input, weight)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout(device, layout):
    input = layouts(device, torch.float64)[layout]
    weight = torch.randn(2 * input.shape[-1], device=device, dtype=torch.float64)[::2]
    grad = torch.randn_like(input)
    for got, want in zip(
        gradients(opbook.rms_norm, grad, input, weight),
        gradients(eager, grad, input, weight),
        strict=True,
    ):
        torch.testing.assert_close(got, want)


def test_expanded_gradient(device):
    input = torch.randn(6, 40, device=device, dtype=torch.float64)
    grad = torch.ones((), device=device, dtype=torch.float64).expand(6, 40)
    (got,), (want,) = (gradients(f, grad, input) for f in (opbook.rms_norm, eager))
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("with_weight", [False, True])
def test_gradcheck_and_gradgradcheck(device, operator, with_weight):
    input = torch.randn(3, 5, device=device, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, device=device, dtype=torch.float64, requires_grad=True)
    args = (input, weight if with_weight else None, 1e-5)
    assert torch.autograd.gradcheck(OPERATORS[operator], args)
    assert torch.autograd.gradgradcheck(OPERATORS[operator], args)


@pytest.mark.parametrize("operator", OPERATORS)
def test_first_gradients_are_the_same_with_create_graph(device, operator):
    input = torch.randn(3, 5, device=device, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, device=device, dtype=torch.float64, requires_grad=True)
    eps = 0.5  # large, so that a gradient without it differs
    loss = OPERATORS[operator](input, weight, eps).sin().sum()
    plain = torch.autograd.grad(loss, (input, weight), retain_graph=True)
    with_graph = torch.autograd.grad(loss, (input, weight), create_graph=True)
    torch.testing.assert_close(with_graph, plain)


@pytest.mark.parametrize("operator", OPERATORS)
def test_gradients_of_tensors_that_depend_on_each_other(device, operator):
    leaf = torch.randn(5, device=device, dtype=torch.float64, requires_grad=True)

    def tied(norm):
        rows = norm(norm(leaf.expand(3, 5).cumsum(0), leaf), leaf)
        return norm(rows, rows.sum(0)).sin().sum()

    (want,) = torch.autograd.grad(tied(eager), leaf)
    for create_graph in (False, True):
        loss = tied(OPERATORS[operator])
        (got,) = torch.autograd.grad(loss, leaf, create_graph=create_graph)
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("needs", [(True, False), (False, True)])
def test_only_the_gradients_asked_for(device, operator, needs):
    input = torch.randn(3, 5, device=device).requires_grad_(needs[0])
    weight = torch.randn(5, device=device).requires_grad_(needs[1])
    OPERATORS[operator](input, weight).sum().backward()
    assert (input.grad is not None, weight.grad is not None) == needs


def test_the_backward_operator_computes_only_what_is_needed(device):
    input, weight = torch.randn(3, 5, device=device), torch.randn(5, device=device)
    _, rrms = torch.ops.opbook.rms_norm_forward(input, weight)
    for needs in ((True, False), (False, True), (False, False)):
        grads = torch.ops.opbook.rms_norm_backward(input, input, weight, rrms, *needs)
        assert [bool(g.numel()) for g in grads] == list(needs)


def test_backward_calls_one_operator(device):
    input, weight = torch.randn(3, 8, device=device), torch.randn(8, device=device)
    leaves = input.requires_grad_(), weight.requires_grad_()
    output, grad = opbook.rms_norm(*leaves), torch.ones(3, 8, device=device)
    with Called() as called:
        torch.autograd.grad(output, leaves, grad)
    assert called.names == ["opbook::rms_norm_backward"]  # none fills with zeros


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_gradient_that_never_comes(device, operator):
    found = []
    for function in (OPERATORS[operator], eager):
        input = torch.randn(3, 8, device=device, requires_grad=True)
        NoGradient.apply(function(input)).sum().backward()
        found.append(input.grad)
    assert found[0] is found[1] is None


@pytest.mark.parametrize("hidden", [24, 25])
@pytest.mark.parametrize("rows", [5, 300])
def test_what_is_added_to_the_input_gradient(device, rows, hidden):
    input, grad, added = torch.randn(3, rows, hidden, device=device)
    weight = torch.randn(hidden, device=device)
    _, rrms = torch.ops.opbook.rms_norm_forward(input, weight)
    arguments = grad, input, weight, rrms, True, True
    without, grad_weight = torch.ops.opbook.rms_norm_backward(*arguments)
    transposed = added.t().contiguous().t()
    for addend in (added, transposed):
        sums = torch.ops.opbook.rms_norm_backward(*arguments, addend)
        torch.testing.assert_close(sums, (without + added, grad_weight))


def test_a_gradient_of_the_backward_operator_is_refused(device):
    input = torch.randn(3, 5, device=device, requires_grad=True)
    _, rrms = torch.ops.opbook.rms_norm_forward(input.detach())
    grad, _ = torch.ops.opbook.rms_norm_backward(input, input, None, rrms, True, False)
    with pytest.raises(NotImplementedError, match="rms_norm_backward has no gradient"):
        grad.sum().backward()


@pytest.mark.parametrize("rows", [8, 300])
@pytest.mark.parametrize(
    ("dtype", "weight_dtype"),
    [pair for pair in itertools.product(DTYPES, repeat=2) if pair[0] != pair[1]],
    ids=str,
)
def test_weight_of_another_dtype_gets_a_gradient_of_its_dtype(
    device, rows, dtype, weight_dtype
):
    """The kernels write fp32 or fp64: also for two half types, which are as wide."""
    input = torch.randn(rows, 24, device=device, dtype=dtype)
    weight = torch.randn(24, device=device, dtype=weight_dtype)
    grad = torch.randn_like(input)
    _, grad_weight = gradients(
        lambda x, w: opbook.rms_norm(x, w, EPS), grad, input, weight
    )
    _, exact = exact_gradients(grad, input, weight)
    assert grad_weight.dtype == weight_dtype
    rtol = max(1e-4, torch.finfo(weight_dtype).eps)
    torch.testing.assert_close(grad_weight.double(), exact, rtol=rtol, atol=1e-4)


def test_a_complex_input_keeps_eagers_gradient(device):
    input = torch.randn(3, 5, device=device, dtype=torch.complex64)
    grad = torch.randn_like(input)
    (got,), (want,) = (gradients(f, grad, input) for f in (opbook.rms_norm, eager))
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_error_is_no_worse_than_eagers(device, dtype):
    input, grad = torch.randn(2, 256, 1024, device=device, dtype=dtype)
    weight = torch.randn(1024, device=device, dtype=dtype)
    exact = exact_gradients(grad, input, weight)

    def errors(function):
        found = gradients(function, grad, input, weight)
        pairs = zip(found, exact, strict=True)
        return [(got.double() - want).abs().mean().item() for got, want in pairs]

    for ours, eagers in zip(errors(opbook.rms_norm), errors(eager), strict=True):
        assert ours <= 1.001 * eagers


@pytest.mark.parametrize("hidden", [256, 257])
def test_backward_repeats_to_the_bit(device, hidden):
    input, grad = torch.randn(2, 1000, hidden, device=device)
    weight = torch.randn(hidden, device=device)
    first, second = (gradients(opbook.rms_norm, grad, input, weight) for _ in range(2))
    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize("layout", FEW_LAYOUTS)
def test_opcheck(device, layout):
    input = layouts(device)[layout].detach().requires_grad_()
    weight = torch.randn(input.shape[-1], device=device, requires_grad=True)
    ops = torch.ops.opbook
    for op in (ops.rms_norm.default, ops.rms_norm_forward.default):
        torch.library.opcheck(op, (input, weight))
    with torch.no_grad():
        _, rrms = ops.rms_norm_forward(input, weight)
        args = (torch.ones_like(input), input, weight, rrms, True, True)
        torch.library.opcheck(ops.rms_norm_backward.default, args)


def test_opcheck_of_the_backward_operator(device):
    ops = torch.ops.opbook
    input, weight = torch.randn(6, 40, device=device), torch.randn(40, device=device)
    with torch.no_grad():
        half = torch.randn(3, 8, device=device, dtype=torch.bfloat16)
        weights = None, half[0].clone(), half[0].half(), half[0].float()
        for x, w in ((input, weight), *((half, weight) for weight in weights)):
            _, rrms = ops.rms_norm_forward(x, w)
            for needs in itertools.product((True, False), repeat=2):
                args = (torch.ones_like(x), x, w, rrms, *needs)
                torch.library.opcheck(ops.rms_norm_backward.default, args)


def test_compiles_forward_and_backward(device):
    def loss(input, weight):
        return opbook.rms_norm(input, weight).sin().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    input, weight = torch.randn(6, 40, device=device), torch.randn(40, device=device)
    for got, want in zip(
        gradients(compiled, None, input, weight),
        gradients(loss, None, input, weight),
        strict=True,
    ):
        torch.testing.assert_close(got, want)


def test_bad_arguments_of_backward_raise(device):
    input, weight = torch.randn(3, 5, device=device), torch.randn(5, device=device)
    _, rrms = torch.ops.opbook.rms_norm_forward(input, weight)
    backward = torch.ops.opbook.rms_norm_backward
    with pytest.raises(
        RuntimeError, match=r"rms_norm_backward.*grad.*\[3, 5\].*\[3, 4\]"
    ):
        backward(input[:, :4], input, weight, rrms, True, True)
    with pytest.raises(RuntimeError, match=r"rms_norm_backward.*rrms.*\[2\]"):
        backward(input, input, weight, rrms[:2], True, True)
    with pytest.raises(RuntimeError, match=r"rms_norm_backward.*added.*\[3, 4\]"):
        backward(input, input, weight, rrms, True, True, input[:, :4])


IN_PLACE = {"interface": opbook.rms_norm_, "operator": torch.ops.opbook.rms_norm_}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", [n for n in LAYOUTS if "expanded" not in n])
def test_in_place_equals_eager_and_keeps_strides(device, layout, dtype):
    input = layouts(device, dtype)[layout]
    expected, strides, version = eager(input), input.stride(), input._version
    assert opbook.rms_norm_(input) is input
    assert input.stride() == strides
    assert input._version > version
    assert_close(input, expected)


def test_in_place_of_a_complex_tensor(device):
    input = torch.randn(6, 40, dtype=torch.complex64, device=device)
    expected = eager(input)
    assert opbook.rms_norm_(input) is input
    assert_close(input, expected)


def test_in_place_of_a_tensor_with_the_negative_bit(device):
    input = torch.randn(6, 40, dtype=torch.complex64, device=device).conj().imag
    expected = eager(input)
    assert input.is_neg()
    assert_close(opbook.rms_norm_(input), expected)


def test_in_place_of_a_tensor_made_in_inference_mode(device):
    with torch.inference_mode():
        input = torch.randn(6, 40, device=device)
        kept, other = input.clone(), input.clone()
    assert isinstance(outcome(other.neg_), RuntimeError)
    for function in IN_PLACE.values():
        with pytest.raises(RuntimeError, match="was made in inference mode"):
            function(input)
    assert input.equal(kept)
    with torch.inference_mode():
        assert_close(opbook.rms_norm_(input), eager(kept))


VIEWS = {
    "slice_of_slice": lambda x: x[1:, 1:4],
    "slice_of_row": lambda x: x[1, 1:],
    "transposed_slice": lambda x: x[1:].t(),
    "slice": lambda x: x[1:],
}


@pytest.mark.parametrize("operator", IN_PLACE)
@pytest.mark.parametrize("view", VIEWS)
def test_in_place_of_a_view_compiled_for_any_size(
    device, fresh_compiler, view, operator
):
    """Inductor loses an offset that is no number, and writes to the base's start."""
    function = IN_PLACE[operator]

    def normalize(x):
        function(VIEWS[view](x))
        return x + 1

    compiled = torch.compile(normalize, fullgraph=True, dynamic=True)
    for shape in ((4, 6), (5, 7)):
        got = torch.randn(shape, device=device)
        want = got.clone()
        assert_close(compiled(got), normalize(want))
        assert_close(got, want)


def test_in_place_writes_nothing_outside_its_view(device):
    base = torch.full((6, 48), 7.0, device=device)
    view = base[:, 4:44].copy_(torch.randn(6, 40))
    opbook.rms_norm_(view)
    assert (base[:, :4] == 7).all()
    assert (base[:, 44:] == 7).all()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    "function", [opbook.rms_norm_, torch.ops.opbook.rms_norm_, torch.Tensor.neg_]
)
def test_in_place_write_to_what_was_saved_for_backward_is_noticed(
    device, function, mode
):
    factor = torch.ones(2, device=device)
    product = torch.ones(2, device=device, requires_grad=True) * factor
    with mode():
        function(factor)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


IN_PLACE_ERRORS = {
    "leaf_that_requires_grad": lambda x: (x.requires_grad_(), None),
    "expanded": lambda x: (x[:1].expand(6, 40), None),
    "weight_inside_input": lambda x: (x, x[2]),
    "view_of_leaf": lambda x: (x.requires_grad_()[1:], None),
    "weight_begins_at_the_last_element": lambda x: side_by_side(x, shared=1),
    "weight_ends_at_the_first_element": lambda x: side_by_side(x, True, shared=1),
}


def side_by_side(x, weight_first=False, shared=0):
    """Input and weight in one piece of memory, with elements that both have."""
    hidden = x.shape[1]
    memory = x.new_ones(x.numel() + hidden - shared)
    begin = hidden - shared if weight_first else 0
    input = memory[begin : begin + x.numel()].view_as(x).copy_(x)
    return input, memory[:hidden] if weight_first else memory[-hidden:]


@pytest.mark.parametrize("weight_first", [False, True])
def test_in_place_with_a_weight_beside_the_input(device, weight_first):
    x = torch.randn(6, 40, device=device)
    input, weight = side_by_side(x, weight_first)
    assert_close(opbook.rms_norm_(input, weight), eager(x))
    assert weight.eq(1).all()


@pytest.mark.parametrize("operator", IN_PLACE)
@pytest.mark.parametrize("case", IN_PLACE_ERRORS)
def test_in_place_refuses_what_eager_refuses(device, case, operator):
    function = IN_PLACE[operator]
    args = IN_PLACE_ERRORS[case](torch.randn(6, 40, device=device))
    # Eager has no rms_norm_; mul_ is its in-place operator of the same two tensors.
    other = 2 if args[1] is None else args[1]
    expected = outcome(lambda x: x.mul_(other), args[0])
    assert isinstance(expected, RuntimeError)
    assert_same_outcome(outcome(function, *args), expected)


@pytest.mark.parametrize("operator", IN_PLACE)
def test_in_place_gradient_is_eagers(device, operator):
    function = IN_PLACE[operator]

    def through(normalize_in_place):
        def loss(input, weight):
            hidden = input * 2
            view = hidden[1:]
            normalize_in_place(view, weight)
            return hidden.sin().sum()

        return loss

    input, weight = torch.randn(6, 40, device=device), torch.randn(40, device=device)
    got = gradients(through(function), None, input, weight)
    want = gradients(
        through(lambda x, w: x.copy_(eager(x.clone(), w))), None, input, weight
    )
    for actual, expected in zip(got, want, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_in_place_invalidates_what_backward_saved(device):
    factor = torch.randn(6, 40, device=device)
    product = torch.randn(6, 40, device=device, requires_grad=True) * factor
    opbook.rms_norm_(factor)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_in_place_opcheck_and_compile(device):
    input, weight = torch.randn(6, 40, device=device), torch.randn(40, device=device)
    torch.library.opcheck(torch.ops.opbook.rms_norm_.default, (input.clone(), weight))

    @torch.compile(fullgraph=True, backend="aot_eager")
    def normalize(x):
        x = x + 0
        opbook.rms_norm_(x, weight)
        return x * 2

    assert_close(normalize(input), eager(input, weight) * 2)


@needs_gpu
def test_cpu_and_gpu_agree():
    input, grad = torch.randn(2, 64, 1000, dtype=torch.float64)
    weight = torch.randn(1000, dtype=torch.float64)
    on_cpu = gradients(opbook.rms_norm, grad, input, weight)
    on_gpu = gradients(opbook.rms_norm, grad.cuda(), input.cuda(), weight.cuda())
    for cpu, gpu in zip(on_cpu, on_gpu, strict=True):
        torch.testing.assert_close(gpu.cpu(), cpu)

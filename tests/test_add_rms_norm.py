"""opbook.add_rms_norm against eager's addition and its rms_norm."""

import pytest
import torch
import torch.nn.functional as F

import opbook
from eager import TOLERANCES, Sample, assert_close, assert_same_outcome, outcome
from gpu import needs_gpu, needs_two_gpus, on_a_busy_stream
from layouts import FEW_LAYOUTS, LAYOUTS, layouts

# The default depends on the dtype, and these tests compare fp16 with fp64.
EPS = torch.finfo(torch.float32).eps
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
OPERATORS = {
    "interface": opbook.add_rms_norm,
    "operator": torch.ops.opbook.add_rms_norm,
}


def eager(input, residual, weight=None, eps=None):
    """Ask PyTorch: two operators."""
    sum = input + residual
    return F.rms_norm(sum, sum.shape[-1:], weight, eps), sum


MATRIX = ("rows", "hidden")
SAMPLES = {
    "add_rms_norm": Sample(eager, input=MATRIX, residual=MATRIX, weight=("hidden",))
}


def assert_equals_eager(input, residual, weight=None, eps=None):
    """The sum to the last bit, the norm to a rounding; both contiguous."""
    output, sum = opbook.add_rms_norm(input, residual, weight, eps)
    expected, expected_sum = eager(input, residual, weight, eps)
    torch.testing.assert_close(sum, expected_sum, rtol=0, atol=0)
    assert_close(output, expected)
    assert output.is_contiguous()
    assert sum.is_contiguous()


SHORT, LONG = (1, 3, 24, 127, 128, 4096), (16384, 65536, 65537)
SHAPES = [(rows, hidden) for hidden in SHORT for rows in (5, 600)]
SHAPES += [(5, hidden) for hidden in LONG]
# Many long rows differ from few ones on a GPU alone.
SHAPES += [pytest.param(600, hidden, marks=needs_gpu) for hidden in LONG]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("rows", "hidden"), SHAPES)
@pytest.mark.parametrize("with_weight", [False, True])
def test_equals_eager(device, dtype, hidden, rows, with_weight):
    input, residual = torch.randn(2, rows, hidden, device=device, dtype=dtype)
    weight = torch.randn(hidden, device=device, dtype=dtype) if with_weight else None
    assert_equals_eager(input, residual, weight)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout(device, layout, dtype):
    input = layouts(device, dtype)[layout]
    residual = torch.randn_like(input, memory_format=torch.contiguous_format)
    weight = torch.randn(2 * input.shape[-1], device=device, dtype=dtype)[::2]
    assert_equals_eager(input, residual, weight)
    assert_equals_eager(residual, input, weight)


def test_a_tensor_and_itself(device):
    input = torch.randn(6, 40, device=device)
    assert_equals_eager(input, input)


@pytest.mark.parametrize("shape", [(7,), (0, 5), (3, 0), (2, 3, 1), (2, 3, 4, 5)])
def test_any_rank(device, shape):
    input, residual = torch.randn(2, *shape, device=device)
    assert_equals_eager(input, residual, torch.randn(shape[-1], device=device))


@pytest.mark.parametrize("eps", [None, 0.0, 1e-5, 1, -1.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_eps(device, eps, dtype):
    rows = [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [1e-4, 1e-4, 1e-4]]
    input = torch.tensor(rows, device=device, dtype=dtype)
    assert_equals_eager(input, input.flip(1), None, eps)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weight_of_another_dtype(device, dtype):
    input, residual = torch.randn(2, 4, 24, device=device, dtype=dtype)
    for weight_dtype in (*DTYPES, torch.int32):
        weight = torch.randn(24, device=device).to(weight_dtype)
        actual = outcome(opbook.add_rms_norm, input, residual, weight)
        assert_same_outcome(actual, outcome(eager, input, residual, weight))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_error_is_no_worse_than_eagers(device, dtype):
    input, residual = torch.randn(2, 64, 4096, device=device, dtype=dtype)
    weight = torch.randn(4096, device=device, dtype=dtype)
    wide = (t.double() for t in (input, residual, weight))
    exact, _ = eager(*wide, EPS)

    def error(function):
        output, _ = function(input, residual, weight)
        return (output.double() - exact).abs().mean().item()

    assert error(opbook.add_rms_norm) <= 1.001 * error(eager)


# Bad calls ----------------------------------------------------------------------------

BAD_CALLS = {
    "residual_broadcast": (lambda x: (x, x[:1]), r"residual.*\[4, 24\].*\[1, 24\]"),
    "residual_dtype": (lambda x: (x, x.double()), r"residual.*[fF]loat.*[dD]ouble|64"),
    "residual_on_meta": (lambda x: (x, x.to("meta")), "residual on the device"),
    "weight_too_short": (lambda x: (x, x, x.new_ones(4)), r"weight.*\[24\].*\[4\]"),
    "no_dimension": (lambda x: (x[0, 0], x[0, 0]), r"input.*dimension.*\[\]"),
}


@pytest.mark.parametrize("fake", [False, True])
@pytest.mark.parametrize("call", BAD_CALLS)
def test_a_bad_call_names_operator_argument_and_values(device, call, fake):
    arguments, words = BAD_CALLS[call]
    args = arguments(torch.randn(4, 24, device=device))
    if fake:
        mode = torch._subclasses.FakeTensorMode()
        args = [mode.from_tensor(argument) for argument in args]
    with pytest.raises(RuntimeError, match=rf"opbook::add_rms_norm: expected {words}"):
        opbook.add_rms_norm(*args)


def test_what_is_no_tensor_or_has_no_kernel_raises(device):
    x = torch.ones(3, device=device)
    with pytest.raises(TypeError, match=r"opbook.add_rms_norm: residual.*float"):
        opbook.add_rms_norm(x, 1.0)
    with pytest.raises(TypeError, match=r"opbook.add_rms_norm: eps.*str"):
        opbook.add_rms_norm(x, x, eps="small")
    with pytest.raises(NotImplementedError, match=r"opbook.add_rms_norm: input.*int32"):
        opbook.add_rms_norm(x.int(), x.int())
    with pytest.raises(RuntimeError, match=r"opbook::add_rms_norm.*Int"):
        torch.ops.opbook.add_rms_norm(x.int(), x.int())
    with pytest.raises(RuntimeError, match=r"opbook::add_rms_norm.*residual"):
        opbook.add_rms_norm(x.cfloat(), x)


# Compiler -----------------------------------------------------------------------------


@pytest.mark.parametrize("layout", FEW_LAYOUTS)
def test_opcheck(device, layout):
    input = layouts(device)[layout].detach().requires_grad_()
    residual = torch.randn(input.shape, device=device, requires_grad=True)
    weight = torch.randn(input.shape[-1], device=device, requires_grad=True)
    ops = torch.ops.opbook
    for op in (ops.add_rms_norm.default, ops.add_rms_norm_forward.default):
        torch.library.opcheck(op, (input, residual, weight))
        torch.library.opcheck(op, (residual.detach(), input.detach()))


@pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.all)]
)
def test_compiles_without_a_graph_break(device, backend):
    def block(input, residual, weight):
        output, sum = opbook.add_rms_norm(input, residual, weight)
        return torch.sigmoid(output), sum * 2

    compiled = torch.compile(block, backend=backend, fullgraph=True, dynamic=True)
    for rows, hidden in ((6, 40), (9, 24)):
        input, residual = torch.randn(2, rows, hidden, device=device)
        args = input, residual, torch.randn(hidden, device=device)
        torch.testing.assert_close(compiled(*args), block(*args))


# Gradients ----------------------------------------------------------------------------


def gradients(function, tensors, grads):
    """Gradients of the tensors for those of output and sum, None for one not used."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    pairs = zip(function(*leaves), grads, strict=True)
    used, grads = zip(*(pair for pair in pairs if pair[1] is not None), strict=True)
    return torch.autograd.grad(used, leaves, grads)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("hidden", [2, 128, 4097])
@pytest.mark.parametrize("rows", [1, 300])
def test_gradients_equal_eagers(device, dtype, hidden, rows):
    shape = (4, rows, hidden)
    input, residual, *grads = torch.randn(shape, device=device, dtype=dtype)
    tensors = input, residual, torch.randn(hidden, device=device, dtype=dtype)
    rounded = (input + residual).double(), torch.zeros_like(input).double()
    exact = gradients(
        lambda *args: eager(*args, EPS),
        (*rounded, tensors[2].double()),
        [grad.double() for grad in grads],
    )
    actual = gradients(lambda *args: opbook.add_rms_norm(*args, EPS), tensors, grads)
    rtol, smallest = TOLERANCES[dtype]
    for got, want in zip(actual, exact, strict=True):
        # Sums of many terms cancel: bound the error by the largest element.
        atol = max(4 * rtol * want.abs().max().item(), smallest)
        torch.testing.assert_close(got.double(), want, rtol=4 * rtol, atol=atol)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_any_layout(device, layout):
    input = layouts(device, torch.float64)[layout]
    other = torch.randn(input.shape, device=device, dtype=torch.float64)
    weight = torch.randn(input.shape[-1], device=device, dtype=torch.float64)
    for tensors, grads in (
        ((input, other, weight), (other.exp(), other)),
        ((other, other, weight), (input, input)),
    ):
        for got, want in zip(
            gradients(opbook.add_rms_norm, tensors, grads),
            gradients(eager, tensors, grads),
            strict=True,
        ):
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("used", ["output", "sum"])
def test_gradient_through_one_of_the_two_results(device, operator, used):
    input, residual = torch.randn(2, 3, 5, device=device, dtype=torch.float64)
    index = ["output", "sum"].index(used)
    grad = torch.randn_like(input)
    grads = [grad if i == index else None for i in range(2)]
    actual = gradients(OPERATORS[operator], (input, residual), grads)
    expected = gradients(eager, (input, residual), grads)
    torch.testing.assert_close(actual, expected)


def test_a_weight_without_a_share_gets_no_gradient(device):
    input = torch.randn(3, 5, device=device, requires_grad=True)
    weight = torch.randn(5, device=device, requires_grad=True)
    opbook.add_rms_norm(input, input.detach(), weight)[1].sum().backward()
    assert weight.grad is None
    torch.testing.assert_close(input.grad, torch.ones_like(input))


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("with_weight", [False, True])
def test_gradcheck_and_gradgradcheck(device, operator, with_weight):
    tensors = [
        torch.randn(*shape, device=device, dtype=torch.float64, requires_grad=True)
        for shape in ((3, 5), (3, 5), (5,))
    ]
    args = (*tensors[:2], tensors[2] if with_weight else None, 0.5)
    assert torch.autograd.gradcheck(OPERATORS[operator], args)
    assert torch.autograd.gradgradcheck(OPERATORS[operator], args)


@pytest.mark.parametrize("operator", OPERATORS)
def test_first_gradients_are_the_same_with_create_graph(device, operator):
    leaves = [
        torch.randn(*shape, device=device, dtype=torch.float64, requires_grad=True)
        for shape in ((3, 5), (3, 5), (5,))
    ]
    eps = 0.5  # large, so that a gradient without it differs
    loss = sum(result.sin().sum() for result in OPERATORS[operator](*leaves, eps))
    plain = torch.autograd.grad(loss, leaves, retain_graph=True)
    with_graph = torch.autograd.grad(loss, leaves, create_graph=True)
    torch.testing.assert_close(with_graph, plain)


@pytest.mark.parametrize("operator", OPERATORS)
def test_gradients_of_tensors_that_depend_on_each_other(device, operator):
    leaf = torch.randn(5, device=device, dtype=torch.float64, requires_grad=True)

    def tied(norm):
        output, sum = norm(leaf.expand(3, 5).cumsum(0), leaf.expand(3, 5), leaf)
        return norm(output, sum, sum.mean(0))[0].sin().sum()

    (want,) = torch.autograd.grad(tied(eager), leaf)
    for create_graph in (False, True):
        loss = tied(OPERATORS[operator])
        (got,) = torch.autograd.grad(loss, leaf, create_graph=create_graph)
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("needs", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0)])
def test_only_the_gradients_asked_for(device, operator, needs):
    input, residual = torch.randn(2, 3, 5, device=device)
    tensors = input, residual, torch.randn(5, device=device)
    leaves = [t.requires_grad_(bool(n)) for t, n in zip(tensors, needs, strict=True)]
    results = OPERATORS[operator](*leaves)
    used = [result.sum() for result in results if result.requires_grad]
    assert len(used) == sum(result.requires_grad for result in eager(*leaves))
    sum(used).backward()
    assert tuple(int(leaf.grad is not None) for leaf in leaves) == needs


def test_the_gradients_of_both_inputs_share_no_memory(device):
    input, residual = (torch.randn(3, 5, device=device).requires_grad_() for _ in "ab")
    for index in range(2):
        input.grad = residual.grad = None
        opbook.add_rms_norm(input, residual)[index].sum().backward()
        torch.testing.assert_close(input.grad, residual.grad)
        assert input.grad.data_ptr() != residual.grad.data_ptr()


def test_a_sum_that_was_changed_is_not_used_for_backward(device):
    input = torch.randn(3, 5, device=device, requires_grad=True)
    output, sum = opbook.add_rms_norm(input, input.detach())
    sum.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_a_complex_input_keeps_eagers_results(device):
    tensors = torch.randn(2, 3, 5, device=device, dtype=torch.complex64)
    grads = torch.randn(2, 3, 5, device=device, dtype=torch.complex64)
    actual = gradients(opbook.add_rms_norm, tensors, grads)
    torch.testing.assert_close(actual, gradients(eager, tensors, grads))
    assert_equals_eager(*tensors)


def test_compiles_forward_and_backward(device):
    def block(*args):
        return [result.sin() for result in opbook.add_rms_norm(*args)]

    input, residual, *grads = torch.randn(4, 6, 40, device=device)
    tensors = input, residual, torch.randn(40, device=device)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    actual = gradients(compiled, tensors, grads)
    torch.testing.assert_close(actual, gradients(block, tensors, grads))


# GPU ----------------------------------------------------------------------------------


@needs_gpu
@pytest.mark.parametrize("index", [0, 1])
def test_runs_on_the_current_stream(index):
    late = torch.randn(64, 4096, device="cuda")
    other = torch.randn(64, 4096, device="cuda")
    for function, args in (
        (lambda x: opbook.add_rms_norm(x, other)[index], (late, other)),
        (lambda x: opbook.add_rms_norm(other, x)[index], (other, late)),
    ):
        assert_close(on_a_busy_stream(function, late), eager(*args)[index])


@needs_gpu
def test_replays_in_a_cuda_graph():
    input, residual = torch.randn(2, 8, 4096, device="cuda")
    opbook.add_rms_norm(input, residual)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = opbook.add_rms_norm(input, residual)
    residual.copy_(torch.randn_like(residual))
    graph.replay()
    for actual, expected in zip(results, eager(input, residual), strict=True):
        assert_close(actual, expected)


@needs_two_gpus
def test_runs_on_the_device_of_its_input():
    input, residual = torch.randn(2, 8, 4096, device="cuda:1")
    with torch.cuda.device(0):
        output, sum = opbook.add_rms_norm(input, residual)
    assert output.device == sum.device == input.device
    assert_close(output, eager(input, residual)[0])


@needs_gpu
def test_cpu_and_gpu_agree():
    tensors = torch.randn(2, 64, 1000, dtype=torch.float64)
    grads = torch.randn(2, 64, 1000, dtype=torch.float64)
    on_cpu = gradients(opbook.add_rms_norm, tensors, grads)
    on_gpu = gradients(opbook.add_rms_norm, tensors.cuda(), grads.cuda())
    for cpu, gpu in zip(on_cpu, on_gpu, strict=True):
        torch.testing.assert_close(gpu.cpu(), cpu)

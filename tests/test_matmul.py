"""opbook.matmul against torch.mm and against fp64."""

import pytest
import torch

import opbook
from eager import Sample, assert_same_outcome, outcome
from gpu import needs_gpu, needs_two_gpus, on_a_busy_stream

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
VERSIONS = {
    "tiled": torch.ops.opbook.matmul,
    "naive": torch.ops.opbook.matmul_naive,  # the same code on the CPU
}
# Rows, inner, columns: tails of the 16 x 16 tiles on every side, and none.
SHAPES = [(1, 1, 1), (16, 16, 16), (15, 17, 33), (64, 200, 48), (1, 1000, 3)]
EMPTY = [(0, 5, 4), (3, 0, 4), (3, 5, 0), (0, 0, 0)]
SAMPLES = {"matmul": Sample(torch.mm, ((3, 8), (8, 4)))}


def assert_within_rounding(actual, input, other):
    """Compare with the exact product, within the error bound of a sum.

    Source: Higham, "Accuracy and Stability of Numerical Algorithms", section 3.5: the
    error of a sum of k products is below k * eps * sum(|a| |b|), in any order. To it
    comes one rounding to the dtype of the result.
    """
    exact = input.double() @ other.double()
    sums_in = torch.float64 if input.dtype == torch.float64 else torch.float32
    size = input.double().abs() @ other.double().abs()
    bound = input.shape[1] * torch.finfo(sums_in).eps * size
    bound += torch.finfo(input.dtype).eps / 2 * exact.abs()
    bound += torch.finfo(input.dtype).smallest_normal
    assert actual.dtype == input.dtype
    assert ((actual.double() - exact).abs() <= bound).all()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, *EMPTY], ids=str)
def test_is_the_exact_product_but_for_rounding(device, shape, dtype, version):
    rows, inner, columns = shape
    input = torch.randn(rows, inner, device=device, dtype=dtype)
    other = torch.randn(inner, columns, device=device, dtype=dtype)
    actual = VERSIONS[version](input, other)
    assert actual.shape == (rows, columns)
    assert actual.is_contiguous()
    assert_within_rounding(actual, input, other)


MATRICES = {
    "contiguous": lambda randn: randn(24, 40),
    "transposed": lambda randn: randn(40, 24).t(),
    "sliced": lambda randn: randn(48, 80)[::2, ::2],
    "padded": lambda randn: randn(24, 48)[:, :40],
    "offset": lambda randn: randn(24 * 40 + 1)[1:].view(24, 40),
    "expanded_rows": lambda randn: randn(1, 40).expand(24, 40),
    "expanded_columns": lambda randn: randn(24, 1).expand(24, 40),
}


def matrix(layout, device, dtype=torch.float32):
    return MATRICES[layout](lambda *s: torch.randn(s, device=device, dtype=dtype))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("left", MATRICES)
@pytest.mark.parametrize("right", MATRICES)
def test_any_strides(device, left, right, dtype, version):
    input = matrix(left, device, dtype)
    other = matrix(right, device, dtype).t()
    assert_within_rounding(VERSIONS[version](input, other), input, other)


def test_sums_run_in_fp32(device):
    """4096 ones: a sum in fp16 ends at 2048, in bf16 at 256."""
    for dtype in (torch.float16, torch.bfloat16):
        ones = torch.ones(1, 4096, device=device, dtype=dtype)
        assert opbook.matmul(ones, ones.t()).item() == 4096


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_error_is_no_worse_than_eagers(device, dtype):
    input = torch.randn(64, 512, device=device, dtype=dtype)
    other = torch.randn(512, 64, device=device, dtype=dtype)
    exact = input.double() @ other.double()

    def error(result):
        return (result.double() - exact).abs().mean().item()

    # Both round once; a few ties fall the other way.
    ours, eagers = (error(f(input, other)) for f in (opbook.matmul, torch.mm))
    assert ours <= 1.001 * eagers


def test_infinity_and_nan_stay_in_their_rows(device):
    """A tile beyond the edge is padded with zeros, and zero times infinity is NaN."""
    input = torch.ones(17, 17, device=device)
    input[3, 5] = float("inf")
    input[16, 16] = float("nan")
    other = torch.ones_like(input)
    expected = torch.mm(input, other)
    torch.testing.assert_close(opbook.matmul(input, other), expected, equal_nan=True)


BAD_CALLS = {
    "one_dimension": lambda x: (x[0], x.t()),
    "three_dimensions": lambda x: (x, x.t()[None]),
    "inner_sizes_differ": lambda x: (x, x),
    "dtypes_differ": lambda x: (x, x.t().double()),
    "integer_other": lambda x: (x, x.t().int()),
    "integer_input": lambda x: (x.int(), x.t()),
    "no_dimension": lambda x: (x.sum(), x.sum()),
    "list": lambda x: (x.tolist(), x.t()),
    "none": lambda x: (x, None),
}


@pytest.mark.parametrize("call", BAD_CALLS)
def test_bad_call_raises_as_eager_and_a_good_call_still_works(device, call):
    input = torch.randn(3, 5, device=device)
    args = BAD_CALLS[call](input)
    expected = outcome(torch.mm, *args)
    assert isinstance(expected, Exception)
    assert_same_outcome(outcome(opbook.matmul, *args), expected)
    assert_within_rounding(opbook.matmul(input, input.t()), input, input.t())


@pytest.mark.parametrize("which", [0, 1])
def test_a_matrix_without_memory_is_an_error(device, which):
    """Eager (seen in torch 2.13) returns a result of whatever lies in memory."""
    args = [torch.randn(3, 3, device=device) for _ in range(2)]
    args[which] = args[which].to("meta")
    with pytest.raises(
        RuntimeError, match=r"opbook::matmul: expected other on the device"
    ):
        opbook.matmul(*args)


def test_errors_name_operator_argument_and_values():
    a, b = torch.ones(2, 3), torch.ones(4, 5)
    with pytest.raises(
        RuntimeError, match=r"opbook::matmul.*3 rows.*\[2, 3\].*\[4, 5\]"
    ):
        opbook.matmul(a, b)
    with pytest.raises(RuntimeError, match=r"opbook::matmul.*matrices.*\[3\]"):
        opbook.matmul(a[0], b)
    with pytest.raises(RuntimeError, match=r"opbook::matmul.*Float.*Double"):
        opbook.matmul(a, torch.ones(3, 4).double())
    with pytest.raises(TypeError, match=r"opbook\.matmul: other must be.*NoneType"):
        opbook.matmul(a, None)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, torch.bool], ids=str)
def test_other_dtypes_are_eagers(device, dtype):
    input = torch.ones(3, 5, device=device).to(dtype)
    args = input, input.t()
    assert_same_outcome(outcome(opbook.matmul, *args), outcome(torch.mm, *args))


@pytest.mark.parametrize("version", VERSIONS)
def test_gradients_of_both_orders(device, version):
    input = torch.randn(3, 4, device=device, dtype=torch.float64, requires_grad=True)
    other = torch.randn(4, 2, device=device, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(VERSIONS[version], (input, other))
    assert torch.autograd.gradgradcheck(VERSIONS[version], (input, other))


@pytest.mark.parametrize("needs", [(True, False), (False, True)])
def test_only_the_gradients_asked_for(device, needs):
    input = torch.randn(3, 4, device=device).requires_grad_(needs[0])
    other = torch.randn(4, 2, device=device).requires_grad_(needs[1])
    opbook.matmul(input, other).sum().backward()
    assert (input.grad is not None, other.grad is not None) == needs


@pytest.mark.parametrize("layout", MATRICES)
def test_opcheck(device, layout):
    input = matrix(layout, device).detach().requires_grad_()
    other = matrix("transposed", device).t().detach().requires_grad_()
    for operator in VERSIONS.values():
        torch.library.opcheck(operator.default, (input, other))


@pytest.mark.parametrize("shape", EMPTY, ids=str)
def test_opcheck_of_empty_matrices(device, shape):
    rows, inner, columns = shape
    input = torch.randn(rows, inner, device=device, requires_grad=True)
    other = torch.randn(inner, columns, device=device, requires_grad=True)
    torch.library.opcheck(torch.ops.opbook.matmul.default, (input, other))


def test_compiles_without_a_graph_break_forward_and_backward(device):
    def loss(input, other):
        return torch.sigmoid(opbook.matmul(input, other)).sum()

    compiled = torch.compile(loss, fullgraph=True, dynamic=True)
    for rows, columns in ((6, 40), (9, 24)):
        input = torch.randn(rows, 8, device=device, requires_grad=True)
        other = torch.randn(8, columns, device=device, requires_grad=True)
        actual = torch.autograd.grad(compiled(input, other), (input, other))
        expected = torch.autograd.grad(loss(input, other), (input, other))
        torch.testing.assert_close(actual, expected)


def test_rows_2_to_the_31_elements_apart():
    """Only the pages that are touched take memory."""
    input = torch.empty(2**31 + 8, dtype=torch.half).as_strided((2, 8), (2**31, 1))
    input.copy_(torch.randn(2, 8))
    other = torch.randn(8, 4).half()
    assert_within_rounding(opbook.matmul(input, other), input, other)
    assert_within_rounding(opbook.matmul(other.t(), input.t()), other.t(), input.t())


@needs_gpu
@pytest.mark.parametrize("version", VERSIONS)
def test_runs_on_the_current_stream(version):
    late = torch.randn(64, 64, device="cuda")
    output = on_a_busy_stream(lambda input: VERSIONS[version](input, late), late)
    assert_within_rounding(output, late, late)


@needs_two_gpus
def test_runs_on_the_device_of_its_input():
    input = torch.randn(64, 64, device="cuda:1")
    with torch.cuda.device(0):
        output = opbook.matmul(input, input)
    assert output.device == input.device
    assert_within_rounding(output, input, input)

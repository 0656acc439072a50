"""The GPU kernels of rms_norm's gradient, run on the CPU by the emulator."""

import functools
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from gpu import needs_emulator
from operands import (
    DTYPES,
    HIDDEN,
    ROWS,
    assert_close_to_exact,
    far_apart,
    not_written,
    sum_dtype,
    weights,
)

CSRC = Path(__file__).parents[1] / "csrc"
PLAN = """
namespace opbook {
const char* launch_plan(int64_t rows, int64_t hidden, int64_t aligned, double* found,
                        void*) {
  const Plan plan = aligned ? plan_for<float, true>(rows, hidden)
                            : plan_for<float, false>(rows, hidden);
  found[0] = plan.path == BackwardPath::kTwoKernels;
  found[1] = plan.chunks;
  found[2] = plan.block.y;
  return nullptr;
}
}  // namespace opbook
"""

pytest_plugins = "emulator_fixtures"
pytestmark = needs_emulator


def check_rms_norm_backward(launch, grad, input, weight, added=None, eps=1e-5):
    """Launch; compare with eager's gradients in fp64."""
    rows, hidden = input.shape
    leaf = input.double().requires_grad_()
    ones = torch.ones(hidden, dtype=torch.double)
    wide_weight = (ones if weight is None else weight.double()).requires_grad_()
    output = F.rms_norm(leaf, (hidden,), wide_weight, eps)
    exact = torch.autograd.grad(output, (leaf, wide_weight), grad.double())
    rrms = torch.rsqrt(input.double().square().mean(1) + eps).to(sum_dtype(input.dtype))

    grad_input = not_written(rows, hidden, dtype=input.dtype)
    partial = not_written(rows, hidden, dtype=rrms.dtype)  # a chunk has a row at least
    weight_dtype = input.dtype if weight is None else weight.dtype
    grad_weight = not_written(hidden, dtype=weight_dtype)
    operands = grad, grad.stride(0), input, input.stride(0), weight, rrms, added
    arguments = (*operands, grad_input, partial, grad_weight, rows, hidden)
    launch("rms_norm_backward", *arguments, folder="rms_norm")
    expected = exact[0] if added is None else exact[0] + added.double()
    assert_close_to_exact(grad_input, expected)
    assert_close_to_exact(grad_weight, exact[1])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("hidden", HIDDEN)
def test_rms_norm_backward(launch, hidden, dtype):
    input, grad = torch.randn(2, 3, hidden, dtype=dtype)
    for weight in weights(hidden, dtype):
        added = torch.randn_like(input) if weight is None else None
        check_rms_norm_backward(launch, grad, input, weight, added)


@pytest.mark.parametrize("rows", ROWS)
def test_rms_norm_backward_of_rows(launch, rows):
    input, weight = ROWS[rows](), torch.randn(ROWS[rows]().shape[1])
    contiguous = torch.randn(input.shape).half()
    for added in (None, torch.randn(input.shape).half()):
        check_rms_norm_backward(launch, contiguous, input, weight, added)
        check_rms_norm_backward(launch, input, contiguous, weight, added)


def test_rms_norm_backward_adds_what_is_not_aligned(launch):
    input, grad = torch.randn(2, 3, 128).half()
    added = ROWS["not_aligned"]()
    check_rms_norm_backward(launch, grad, input, torch.randn(128), added)


# Few rows, a block each; many rows, of a part of a warp, a warp, two, and more; rows
# that begin anywhere in a vector, with a block or a chunk each, and with several rows a
# chunk.
FEW = [(1, 64), (1, 576), (2, 64), (256, 8), (61, 576)]
MANY = [(300, 8), (601, 8), (521, 200), (521, 576), (259, 1160), (257, 2056)]
NOT_ALIGNED = [
    (2, 201),
    (2, 577),
    (61, 577),
    (127, 33),
    (129, 33),
    (300, 33),
    (601, 1),
    (521, 201),
    (259, 1161),
]


@pytest.mark.parametrize("shape", FEW + MANY + NOT_ALIGNED, ids=str)
def test_rms_norm_backward_of_many_rows(launch, shape):
    rows, hidden = shape
    input = torch.randn(rows, hidden + 8).half()[:, :hidden]
    grad = torch.randn(rows, hidden).half()
    is_large = rows * hidden > 2**16  # a second for each weight
    for weight in weights(hidden, torch.half)[-1 if is_large else 0 :]:
        added = torch.randn_like(grad) if weight is None or is_large else None
        check_rms_norm_backward(launch, grad, input, weight, added)


@pytest.mark.parametrize("hidden", [4 * 2052, 4 * 2052 + 1, 4 * 4104])
def test_rms_norm_backward_of_a_row_too_long_for_the_registers(launch, hidden):
    input = torch.randn(2, hidden + 4)[:, :hidden]  # other strides than the rest
    grad, added = torch.randn(2, 2, hidden)
    check_rms_norm_backward(launch, grad, input, torch.randn(hidden), added)


@pytest.mark.parametrize("hidden", [128, 127])
def test_rms_norm_backward_of_many_rows_with_gaps(launch, hidden):
    """Each row begins in another place of a vector than the one before."""
    input, grad = torch.randn(300, 129).half()[:, :hidden], torch.randn(300, hidden)
    check_rms_norm_backward(launch, grad.half(), input, torch.randn(hidden))


@pytest.mark.parametrize("later", ["grad", "input"])
def test_rms_norm_backward_of_rows_that_begin_in_different_places(launch, later):
    """Neither has gaps, but where one has a vector, the other has none."""
    starts = {"grad": 0, "input": 0} | {later: 1}
    grad, input = (torch.randn(300 * 33 + 1).half()[n:] for n in starts.values())
    rows = [each[: 300 * 33].view(300, 33) for each in (grad, input)]
    check_rms_norm_backward(launch, *rows, torch.randn(33))


@pytest.mark.parametrize("rows", [5, 300])  # few, and more
@pytest.mark.parametrize("name", ["grad", "input"])
def test_rms_norm_backward_of_rows_beside_a_nan(launch, name, rows):
    """Rows of 33 elements share vectors with their neighbours."""
    operands = {"grad": torch.randn(rows, 33), "input": torch.randn(rows, 33)}
    operands[name][2] = torch.nan
    grad, input = operands.values()
    rrms, weight = torch.ones(rows), torch.ones(33)
    grad_input, grad_weight = torch.empty(rows, 33), torch.empty(33)
    partial = torch.empty(rows, 33)
    arguments = grad, 33, input, 33, weight, rrms, None, grad_input, partial
    launch("rms_norm_backward", *arguments, grad_weight, rows, 33, folder="rms_norm")
    assert grad_input.isnan().any(1).nonzero().flatten().tolist() == [2]


def test_rms_norm_backward_of_rows_2_to_the_31_elements_apart(launch):
    check_rms_norm_backward(launch, far_apart(), far_apart(), torch.randn(128))


@pytest.fixture(scope="module")
def plan(built):
    """The launcher's own source, asked how it would divide the work."""
    gpu = built(CSRC / "rms_norm/rms_norm_backward.cu", 64, PLAN, types=())
    return functools.partial(gpu.launch, "launch_plan")


@pytest.mark.parametrize("hidden", [4, 201, 4096])
def test_rms_norm_backward_counts_rows_in_an_int_as_far_as_one_reaches(plan, hidden):
    """A block goes on to the row that is as many rows away as the grid has."""
    for rows in (2**20, 2**30, 2**30 + 1, 2**31 + 1):
        found = torch.zeros(3, dtype=torch.float64)
        plan(rows, hidden, int(hidden % 4 == 0), found)
        any_row, chunks, rows_of_block = map(int, found)
        assert any_row or rows - 1 + chunks * rows_of_block < 2**31
        assert any_row == (rows > 2**30)
        assert 1 <= chunks <= rows


ONE_GRADIENT = [(1, 128), (5, 33), (5, 128), (300, 128)]


@pytest.mark.parametrize(("rows", "hidden"), ONE_GRADIENT, ids=str)
@pytest.mark.parametrize("wanted", ["grad_input", "grad_weight"])
def test_rms_norm_backward_of_one_gradient(launch, rows, hidden, wanted):
    """The other's memory is not there."""
    input, grad = torch.randn(2, rows, hidden)
    weight = torch.randn(hidden)
    rrms = torch.rsqrt(input.square().mean(1))
    scratch = torch.empty(rows, hidden)
    results = {
        "grad_input": not_written(rows, hidden, dtype=torch.float32),
        "grad_weight": not_written(hidden, dtype=torch.float32),
    }
    grad_input, grad_weight = (
        result if name == wanted else None for name, result in results.items()
    )
    operands = grad, hidden, input, hidden, weight, rrms, None
    arguments = (*operands, grad_input, scratch, grad_weight, rows, hidden)
    launch("rms_norm_backward", *arguments, folder="rms_norm")
    assert not results[wanted].isnan().any()

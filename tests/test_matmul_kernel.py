"""The GPU kernels of matmul, run on the CPU by the emulator: see gpu_emulator.h."""

import pytest
import torch

from gpu import needs_emulator
from operands import DTYPES, assert_close_to_exact, far_apart, not_written

pytest_plugins = "emulator_fixtures"
pytestmark = needs_emulator


def check_matmul(launch, launcher, left, right):
    """Launch on matrices of any strides; compare with fp64."""
    output = not_written(left.shape[0], right.shape[1], dtype=left.dtype)
    sizes = *left.shape, right.shape[1]
    arguments = (left, *left.stride(), right, *right.stride(), output, *sizes)
    launch("matmul", *arguments, launcher=launcher)
    assert_close_to_exact(output, left.double() @ right.double())


@pytest.mark.parametrize("launcher", ["matmul", "matmul_naive"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (16, 16, 16), (17, 33, 15), (3, 0, 5), (17, 5, 33)], ids=str
)
def test_matmul(launch, shape, dtype, launcher):
    rows, inner, columns = shape
    left = torch.randn(rows, inner, dtype=dtype)
    right = torch.randn(inner, columns, dtype=dtype)
    check_matmul(launch, launcher, left, right)
    left = torch.randn(inner, 2 * rows, dtype=dtype).t()[::2]
    check_matmul(launch, launcher, left, right.t().contiguous().t())


@pytest.mark.parametrize("launcher", ["matmul", "matmul_naive"])
def test_matmul_of_rows_2_to_the_31_elements_apart(launch, launcher):
    left = far_apart()[:, :24]
    check_matmul(launch, launcher, left, torch.randn(24, 3).half())
    check_matmul(launch, launcher, torch.randn(3, 24).half(), left.t())


@pytest.mark.parametrize("launcher", ["matmul", "matmul_naive"])
def test_matmul_sums_in_fp32(launch, launcher):
    ones = torch.ones(1, 600, dtype=torch.bfloat16)  # a sum in bf16 ends at 256
    check_matmul(launch, launcher, ones, ones.t())

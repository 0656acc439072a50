"""The GPU kernels of add_rms_norm, run on the CPU: see gpu_emulator.h."""

import pytest
import torch
import torch.nn.functional as F

from eager import assert_close
from gpu import needs_emulator
from operands import (
    DTYPES,
    ROWS,
    SHORT,
    far_apart,
    not_written,
    sum_dtype,
    weights,
    wide,
)

pytest_plugins = "emulator_fixtures"
pytestmark = needs_emulator


def check_add_rms_norm(launch, input, residual, weight=None, eps=1e-5):
    """Launch; compare the sum with eager's, and the rest with fp64."""
    rows, hidden = input.shape
    output = not_written(rows, hidden, dtype=input.dtype)
    sum = not_written(rows, hidden, dtype=input.dtype)
    rrms = not_written(rows, dtype=sum_dtype(input.dtype))
    operands = input, input.stride(0), residual, residual.stride(0), weight
    arguments = (*operands, output, sum, rrms, rows, hidden, eps)
    launch("add_rms_norm", *arguments)
    expected = input + residual
    torch.testing.assert_close(sum, expected, rtol=0, atol=0)
    exact = F.rms_norm(expected.double(), (hidden,), wide(weight), eps)
    exact_rrms = torch.rsqrt(expected.double().square().mean(1) + eps)
    assert_close(output, exact.to(input.dtype))
    assert_close(rrms, exact_rrms.to(rrms.dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("hidden", [1, 33, 128, 4096])
def test_add_rms_norm(launch, hidden, dtype):
    input, residual = torch.randn(2, 3, hidden, dtype=dtype)
    for weight in weights(hidden, dtype):
        check_add_rms_norm(launch, input, residual, weight)


def test_add_rms_norm_of_long_rows(launch):
    for hidden in (4 * 2052, 4 * 4104):  # in the registers, and too long for them
        input, residual = torch.randn(2, 2, hidden)
        check_add_rms_norm(launch, input, residual, torch.randn(hidden))


@pytest.mark.parametrize("rows", ROWS)
def test_add_rms_norm_of_rows(launch, rows):
    input = ROWS[rows]()
    contiguous = torch.randn(input.shape).half()
    for weight in (None, torch.randn(input.shape[1])):  # two kernels, for few rows
        check_add_rms_norm(launch, input, contiguous, weight)
        check_add_rms_norm(launch, contiguous, input, weight)


def test_add_rms_norm_of_many_rows(launch):
    input, residual = torch.randn(2, 513, 136)
    check_add_rms_norm(launch, input, residual, torch.randn(136))


@pytest.mark.parametrize("has_weight", [True, False])
@pytest.mark.parametrize(("rows", "hidden"), [*SHORT, (513, 272)], ids=str)
def test_add_rms_norm_of_short_rows_that_share_a_block(
    launch, rows, hidden, has_weight
):
    input, residual = torch.randn(2, rows, hidden).half()
    weight = torch.randn(hidden) if has_weight else None
    check_add_rms_norm(launch, input, residual, weight)


@pytest.mark.parametrize("rows", [2, 513])
@pytest.mark.parametrize("hidden", [94, 188, 266, 268])
def test_add_rms_norm_of_rows_aligned_to_a_part_of_a_vector(launch, hidden, rows):
    input, residual, weight = torch.randn(3, rows, hidden).half()
    check_add_rms_norm(launch, input, residual, weight[0].clone())
    moved = torch.randn(rows * hidden + 1).half()[1:].view(rows, hidden)
    check_add_rms_norm(launch, input, moved, weight[0].clone())


def test_add_rms_norm_of_rows_2_to_the_31_elements_apart(launch):
    for weight in (None, torch.randn(128)):  # two kernels
        check_add_rms_norm(launch, far_apart(), far_apart(), weight)


def test_add_rms_norm_without_its_third_result(launch):
    input, (output, sum) = torch.randn(2, 128), torch.empty(2, 2, 128)
    arguments = (input, 128, input, 128, None, output, sum, None, 2, 128, 1e-5)
    launch("add_rms_norm", *arguments)
    assert_close(output, F.rms_norm(2 * input, (128,), eps=1e-5))

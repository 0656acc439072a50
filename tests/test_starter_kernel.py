"""The starter's GPU kernels, run on the CPU by the emulator: see gpu_emulator.h."""

from pathlib import Path

import pytest
import torch

from gpu import needs_emulator
from operands import not_written

CSRC = Path(__file__).parents[1] / "starter" / "cpp" / "csrc"
# The emulator passes pointers and numbers, and no structs.
PLAIN = """
namespace starter {
template <typename T>
const char* launch_plain(const T* gate, const T* up, int64_t columns, int64_t stride,
                         T* output, int64_t count, void* stream) {
  return launch_swiglu<T>({gate, columns, stride}, {up, columns, stride}, output, count,
                          INFINITY, stream);
}
template <typename T>
const char* launch_plain_backward(const T* grad, const T* gate, const T* up,
                                  T* grad_gate, T* grad_up, int64_t count,
                                  void* stream) {
  return launch_swiglu_backward<T>({grad, 1, 1}, {gate, 1, 1}, {up, 1, 1}, grad_gate,
                                   grad_up, count, INFINITY, stream);
}
STARTER_INSTANTIATE(launch_plain)
STARTER_INSTANTIATE(launch_plain_backward)
}  // namespace starter
"""
DTYPES = [torch.bfloat16, torch.float32, torch.float64]
COUNTS = [1, 7, 8, 9, 2047, 2048, 2050]  # of vectors with and without a tail

pytest_plugins = "emulator_fixtures"
pytestmark = needs_emulator


@pytest.fixture(scope="module")
def gpu(built, tmp_path_factory):
    source = tmp_path_factory.mktemp("starter") / "plain.cu"
    kernels = (CSRC / "swiglu.cu").read_text()
    include = '#include "swiglu.h"'
    assert include in kernels
    source.write_text(kernels.replace(include, f'#include "{CSRC}/swiglu.h"') + PLAIN)
    return built(source, 32)


def expected(gate, up):
    gate, up = gate.double(), up.double()
    return torch.nn.functional.silu(gate) * up


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("offset", [0, 1])  # 1: no vector is aligned
def test_contiguous_tensors(gpu, offset, count, dtype):
    gate, up = torch.randn(2, 4096, dtype=dtype)[:, offset : offset + count]
    output = not_written(count, dtype=dtype)
    gpu.launch("launch_plain", gate, up, 1, 1, output, count)
    torch.testing.assert_close(output, expected(gate, up).to(dtype))


@pytest.mark.parametrize("columns", [16, 15])  # odd rows are not aligned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_halves_of_rows(gpu, dtype, columns):
    gate, up = torch.randn(5, 2 * columns, dtype=dtype).chunk(2, dim=1)
    output = not_written(5, columns, dtype=dtype)
    gpu.launch("launch_plain", gate, up, columns, 2 * columns, output, output.numel())
    torch.testing.assert_close(output, expected(gate, up).to(dtype))


@pytest.mark.parametrize("needed", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("count", COUNTS)
def test_gradients(gpu, count, needed):
    grad, gate, up = torch.randn(3, 4096, dtype=torch.float64)[:, :count]
    results = [
        not_written(count, dtype=grad.dtype) if need else None for need in needed
    ]
    gpu.launch("launch_plain_backward", grad, gate, up, *results, count)
    inputs = gate.requires_grad_(), up.requires_grad_()
    right = torch.autograd.grad(expected(*inputs), inputs, grad)
    for result, gradient in zip(results, right, strict=True):
        if result is not None:
            torch.testing.assert_close(result, gradient)

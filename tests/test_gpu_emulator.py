"""The emulator that runs GPU kernels on the CPU, and what all kernels share.

An order decides which warps and lanes run first, so a kernel that is right in one order
by luck is wrong in another. The emulator also checks each access: see gpu_emulator.h.
"""

import functools
from pathlib import Path

import pytest
import torch

from emulated import GpuFault
from gpu import needs_emulator

CSRC = Path(__file__).parents[1] / "csrc"

pytest_plugins = "emulator_fixtures"
pytestmark = needs_emulator


# the grid -----------------------------------------------------------------------------

SIZE_OF_GRID = f"""
#include "{CSRC}/rms_norm/grid.h"
namespace opbook {{
__global__ void nothing() {{}}
const char* launch_size_of_grid(int64_t rows, int threads, double* size, void*) {{
  const dim3 block = block_of_rows(threads, 128);
  nothing<<<1, block>>>();
  const dim3 grid = grid_of_rows(rows, block);
  size[0] = grid.x;
  size[1] = grid.y;
  size[2] = block.x;
  size[3] = block.y;
  return launch_error();
}}
}}  // namespace opbook
"""


@pytest.fixture(scope="module")
def size_of_grid(built, tmp_path_factory):
    source = tmp_path_factory.mktemp("grid") / "size_of_grid.cu"
    source.write_text(SIZE_OF_GRID)
    return functools.partial(built(source, 64).launch, "launch_size_of_grid")


@pytest.mark.parametrize("threads", [1, 3, 32, 33, 64, 1024, 5000])
@pytest.mark.parametrize("rows", [1, 2**22, 2**26, 2**31, 2**34 + 1])
def test_a_grid_of_rows_is_one_that_hip_takes(size_of_grid, rows, threads):
    """HIP counts the threads along each dimension, and 2**32 are too many."""
    size = torch.zeros(4, dtype=torch.float64)
    size_of_grid(rows, threads, size)
    blocks, layers, threads_of_row, rows_of_block = map(int, size)
    assert threads_of_row >= min(threads, 1024)
    assert blocks * threads_of_row * rows_of_block < 2**32
    assert layers <= 65535
    needed = -(-rows // rows_of_block)
    assert needed <= blocks * layers < needed + blocks


# The emulator itself ------------------------------------------------------------------

FAULTY = r"""
#include "block_sum.h"
namespace others::kernels {  // the emulator is not for opbook alone
using namespace opbook;

__global__ void faulty_kernel(int fault, float* data) {
  __shared__ float shared[64];
  __shared__ float never_written[64];
  const int t = threadIdx.x;
  shared[t] = t;
  if (fault < 0) never_written[t] = t;
  if (fault != 1) __syncthreads();
  float value = shared[t ^ 1];
  if (fault == 2) shared[t] = value;
  if (fault == 3) value += never_written[t];
  if (fault == 4 && t < 40) __syncthreads();
  if (fault == 5 && t < 40) value = shuffle_xor(value, 1);
  if (fault == 6 && t == 7) return;
  if (fault == 7) shared[0] = value;
  if (fault == 8) value += data[t + 1];
  if (fault == 9) data[-1 - t] = value;
  if (fault == 10) value += *reinterpret_cast<const double*>(data + (t & 1));
  if (fault == 11) value = shuffle_xor(value, 63);
  if (fault == 12) value = shuffle_xor(value, 16);
  if (fault == 13) {
    if (t < 32) __syncthreads();
    else __syncthreads();
  }
  __syncthreads();
  if (fault == 14) data[0] = value;
  if (fault == 15) value += data[t ^ 1];
  data[t] = value;
}

__global__ void blocks_kernel(float* data) { data[0] += blockIdx.x; }

const char* launch_faulty(int fault, int threads, float* data, void* stream) {
  if (fault == 16) blocks_kernel<<<2, 1, 0, static_cast<cudaStream_t>(stream)>>>(data);
  else faulty_kernel<<<1, threads, 0, static_cast<cudaStream_t>(stream)>>>(fault, data);
  const auto status = cudaGetLastError();
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}
}  // namespace others::kernels
"""
FAULTS = {
    1: "race: .* shared memory|shared memory that the block has not written",
    2: "race: .* shared memory",
    3: "shared memory that the block has not written",
    4: "divergent barrier",
    5: "divergent shuffle",
    6: "divergent barrier",
    7: "race: .* shared memory",
    8: "reads out of bounds",
    9: "writes out of bounds",
    10: "not aligned",
    13: "divergent barrier",
    14: "race: writes global memory",
    15: "race: .* global memory",
    16: "race: .* another block",
}


@pytest.fixture(params=["ascending", "descending", "random"])
def faulty(request, built, warp_size, tmp_path_factory):
    """Launch the kernel above, with one of its faults."""
    source = tmp_path_factory.getbasetemp() / "csrc" / "faulty.cu"
    source.parent.mkdir(exist_ok=True)
    if not source.exists():
        source.write_text(FAULTY.replace("block_sum.h", str(CSRC / "block_sum.h")))
    gpu = built(source, warp_size)
    return functools.partial(gpu.launch, "launch_faulty", order=request.param)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_an_error(faulty, fault):
    with pytest.raises(GpuFault, match=FAULTS[fault]):
        faulty(fault, 64, torch.zeros(64))


def test_a_launcher_that_is_not_there_is_named(faulty):
    with pytest.raises(LookupError, match=r"no launch_other: .* are launch_faulty"):
        faulty.func("launch_other")


def test_a_right_kernel_runs_after_a_fault(faulty):
    data = torch.zeros(64)
    with pytest.raises(GpuFault):
        faulty(7, 64, data)
    faulty(0, 64, data)
    torch.testing.assert_close(data, (torch.arange(64) ^ 1).float())


def test_a_shuffle_is_as_wide_as_the_warp(faulty, warp_size):
    """Lane 0 of 64 has a lane 63; of 32, HIP gives a lane its own value."""
    data = torch.zeros(64)
    faulty(11, 64, data)
    partner = torch.arange(64) ^ 63 ^ 1 if warp_size == 64 else torch.arange(64) ^ 1
    torch.testing.assert_close(data, partner.float())


@pytest.mark.parametrize("threads", [0, 1025])
def test_a_block_that_no_gpu_takes_is_an_error(faulty, threads):
    with pytest.raises(GpuFault, match="invalid configuration"):
        faulty(0, threads, torch.zeros(64))


def test_a_shuffle_from_a_lane_beyond_the_block_is_an_error(faulty):
    with pytest.raises(GpuFault, match="lane that the warp does not have"):
        faulty(12, 48, torch.zeros(48))

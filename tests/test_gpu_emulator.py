"""The GPU kernels, run on the CPU at both warp sizes and in several orders.

An order decides which warps and lanes run first, so a kernel that is right in one order
by luck is wrong in another. The emulator also checks each access: see gpu_emulator.h.
"""

import functools
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from eager import assert_close
from emulated import GpuFault, missing_tool
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

pytest_plugins = "emulator_fixtures"
pytestmark = pytest.mark.skipif(missing_tool() is not None, reason=f"{missing_tool()}")


# the grid -----------------------------------------------------------------------------

SIZE_OF_GRID = f"""
#include "{CSRC}/grid.h"
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


# rms_norm -----------------------------------------------------------------------------


def wide(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.double()


def check_rms_norm(launch, input, weight, output=None, eps=1e-5):
    """Launch forward; compare the output and the reciprocal RMS with fp64."""
    rows, hidden = input.shape
    exact = F.rms_norm(input.double(), (hidden,), wide(weight), eps)
    exact_rrms = torch.rsqrt(input.double().square().mean(1) + eps)
    output = not_written(rows, hidden, dtype=input.dtype) if output is None else output
    rrms = not_written(rows, dtype=sum_dtype(input.dtype))
    strides = input.stride(0), output.stride(0)
    launch(
        "rms_norm",
        input,
        strides[0],
        weight,
        output,
        strides[1],
        rrms,
        rows,
        hidden,
        eps,
    )
    assert_close(output, exact.to(input.dtype))
    assert_close(rrms, exact_rrms.to(rrms.dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("hidden", HIDDEN)
def test_rms_norm(launch, hidden, dtype):
    input = torch.randn(3, hidden, dtype=dtype)
    for weight in weights(hidden, dtype):
        check_rms_norm(launch, input, weight)


@pytest.mark.parametrize(
    ("rows", "hidden"),
    [(257, 4 * 72), (257, 4 * 1028), (2, 4 * 2052), (2, 4 * 4104)],
    ids=str,
)
def test_rms_norm_of_many_rows_of_long_rows_and_of_longer(launch, rows, hidden):
    """Each is the job of a kernel of its own; the last does not fit the registers."""
    check_rms_norm(launch, torch.randn(rows, hidden), torch.randn(hidden))


# A part of a warp, a warp, and two a row; a block's last rows are behind the last one.
SHORT = [(259, 8), (301, 24), (300, 200), (257, 256), (259, 520), (263, 5), (259, 33)]


@pytest.mark.parametrize(("rows", "hidden"), SHORT, ids=str)
def test_rms_norm_of_short_rows_that_share_a_block(launch, rows, hidden):
    check_rms_norm(launch, torch.randn(rows, hidden).half(), torch.randn(hidden))


# Few rows without a weight take the kernel of many.
@pytest.mark.parametrize("has_weight", [True, False])
@pytest.mark.parametrize("rows", ROWS)
def test_rms_norm_of_rows(launch, rows, has_weight):
    input = ROWS[rows]()
    check_rms_norm(launch, input, torch.randn(input.shape[1]) if has_weight else None)


@pytest.mark.parametrize("has_weight", [True, False])
@pytest.mark.parametrize("rows", ["not_aligned", "padded", "padded_and_aligned"])
def test_rms_norm_in_place(launch, rows, has_weight):
    input = ROWS[rows]()
    weight = torch.randn(input.shape[1]) if has_weight else None
    check_rms_norm(launch, input, weight, output=input)


@pytest.mark.parametrize("weight", [torch.ones(128), None], ids=["weight", "none"])
def test_rms_norm_without_its_second_result(launch, weight):
    input, output = torch.randn(2, 128), not_written(2, 128, dtype=torch.float32)
    launch("rms_norm", input, 128, weight, output, 128, None, 2, 128, 1e-5)
    assert_close(output, F.rms_norm(input, (128,), weight, eps=1e-5))


@pytest.mark.parametrize("weight", [torch.ones(128), None], ids=["weight", "none"])
def test_rms_norm_of_rows_2_to_the_31_elements_apart(launch, weight):
    check_rms_norm(launch, far_apart(), weight, output=far_apart())


@pytest.mark.parametrize("weight", [torch.ones(128), None], ids=["weight", "none"])
def test_rms_norm_of_squares_beyond_fp16(launch, weight):
    check_rms_norm(launch, torch.full((1, 128), 300.0, dtype=torch.half), weight)


def test_rms_norm_passes_on_what_the_gpu_says(launch):
    input, too_short = torch.randn(1, 128), torch.randn(127)
    arguments = (input, 128, too_short, input.clone(), 128, None, 1, 128, 1e-5)
    with pytest.raises(GpuFault, match="reads out of bounds"):
        launch("rms_norm", *arguments)


FORM = """
namespace opbook {
using Half = c10::Half;
const char* launch_form(int64_t rows, int64_t vectors, int64_t has_weight,
                        double* found, void*) {
  const auto [kernel, block] =
      rms_norm_form<Half, Half, 8, NoResidual>(rows, vectors, has_weight);
  found[0] = block.x;
  found[1] = block.y;
  const auto name = [&](auto form, int kept, int least, int most) {
    if (kernel == form) found[2] = kept, found[3] = least, found[4] = most;
  };
  const auto few = [&]<int kThreads>() {
    name(rms_norm_few_rows_kernel<kThreads, Half, Half, 8, NoResidual>, kFewRowsKept<NoResidual>,
         kThreads, kThreads);
  };
  few.template operator()<256>();
  few.template operator()<512>();
  const auto any = [&]<typename... Form>() {
    (name(rms_norm_kernel<Form, Half, Half, 8, NoResidual>, Form::kKept, 1,
          Form::kThreads),
     ...);
  };
  any.template operator()<ShortRows, ThirdRows, LongRows, ManyLongRows, AnyRows>();
  return nullptr;
}
}  // namespace opbook
"""


@pytest.fixture(scope="module")
def form(built, tmp_path_factory):
    """The launcher's own source, asked which form it would launch."""
    text = (CSRC / "rms_norm/rms_norm.cu").read_text()
    text = text.replace('"rms_norm.h"', f'"{CSRC}/rms_norm/rms_norm.h"')
    source = tmp_path_factory.mktemp("form") / "form.cu"
    source.write_text(text + FORM)
    return functools.partial(built(source, 64).launch, "launch_form")


@pytest.mark.parametrize("has_weight", [True, False])
@pytest.mark.parametrize("rows", [1, 257])
def test_a_block_is_as_large_as_its_kernel_was_compiled_for(form, rows, has_weight):
    """Only a GPU without clusters would show a row of more than 2048 vectors."""
    edges = [1, 33, *(256 * n for n in range(1, 20))]
    for vectors in sorted({edge + by for edge in edges for by in (0, 1)}):
        found = torch.full((5,), -1.0, dtype=torch.float64)
        form(rows, vectors, int(has_weight), found)
        threads, rows_of_block, kept, least, most = map(int, found)
        assert kept >= 0, "the form has a name"
        assert least <= threads * rows_of_block <= most, (vectors, kept)
        assert kept == 0 or threads * kept >= vectors


# add_rms_norm -------------------------------------------------------------------------


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


@pytest.mark.parametrize("rows", [name for name in ROWS if name != "many"])
def test_add_rms_norm_of_rows(launch, rows):
    input = ROWS[rows]()
    contiguous, weight = torch.randn(input.shape).half(), torch.randn(input.shape[1])
    check_add_rms_norm(launch, input, contiguous, weight)
    check_add_rms_norm(launch, contiguous, input, weight)


def test_add_rms_norm_of_many_rows(launch):
    input, residual = torch.randn(2, 513, 136)
    check_add_rms_norm(launch, input, residual, torch.randn(136))


@pytest.mark.parametrize(("rows", "hidden"), [*SHORT, (513, 272)], ids=str)
def test_add_rms_norm_of_short_rows_that_share_a_block(launch, rows, hidden):
    input, residual = torch.randn(2, rows, hidden).half()
    check_add_rms_norm(launch, input, residual, torch.randn(hidden))


def test_add_rms_norm_of_rows_2_to_the_31_elements_apart(launch):
    check_add_rms_norm(launch, far_apart(), far_apart(), torch.randn(128))


def test_add_rms_norm_without_its_third_result(launch):
    input, (output, sum) = torch.randn(2, 128), torch.empty(2, 2, 128)
    arguments = (input, 128, input, 128, None, output, sum, None, 2, 128, 1e-5)
    launch("add_rms_norm", *arguments)
    assert_close(output, F.rms_norm(2 * input, (128,), eps=1e-5))


# add_one ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 31, 255, 256, 257, 1000])
def test_add_one(launch, count, dtype):
    input = torch.randn(count, dtype=dtype)
    output = not_written(count, dtype=dtype)
    launch("add_one", input, output, count)
    torch.testing.assert_close(output, input + 1, rtol=0, atol=0)
    launch("add_one", input, input, count)
    torch.testing.assert_close(input, output, rtol=0, atol=0)


# matmul -------------------------------------------------------------------------------


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
  if (fault == 16) blocks_kernel<<<2, 1, 0, static_cast<gpuStream_t>(stream)>>>(data);
  else faulty_kernel<<<1, threads, 0, static_cast<gpuStream_t>(stream)>>>(fault, data);
  const auto status = gpuGetLastError();
  return status == gpuSuccess ? nullptr : gpuGetErrorString(status);
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

"""The GPU kernels of rms_norm, run on the CPU by the emulator: see gpu_emulator.h."""

import functools
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from eager import assert_close
from emulated import GpuFault
from gpu import needs_emulator
from operands import (
    DTYPES,
    HIDDEN,
    ROWS,
    SHORT,
    far_apart,
    not_written,
    sum_dtype,
    weights,
    wide,
)

CSRC = Path(__file__).parents[1] / "csrc"

pytest_plugins = "emulator_fixtures"
pytestmark = needs_emulator


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
    [(2, 2400), (257, 288), (513, 288), (513, 400), (2, 4112), (2, 8208), (2, 16416)],
    ids=str,
)
@pytest.mark.parametrize("more", [0, 1])
def test_rms_norm_of_few_rows_of_many_and_of_longer_ones(launch, rows, hidden, more):
    """Each is the job of a kernel of its own; the last does not fit the registers.

    With one element more, each row begins in another place of a vector.
    """
    hidden += more
    check_rms_norm(launch, torch.randn(rows, hidden), torch.randn(hidden))


# Of the bytes at whose multiples rows begin; the first are few, the last are too long.
@pytest.mark.parametrize("bytes", [4, 8])
@pytest.mark.parametrize(
    ("rows", "vectors"),
    [(2, 33), (513, 47), (513, 61), (513, 129), (2, 1537), (2, 2305)],
)
def test_rms_norm_of_rows_aligned_to_a_part_of_a_vector(launch, bytes, rows, vectors):
    hidden = vectors * bytes // 2
    half = torch.randn(rows, hidden).half()
    padded = torch.randn(rows, hidden + 8).half()[:, :hidden]
    for weight in (torch.randn(hidden).half(), torch.randn(hidden), None):
        check_rms_norm(launch, half, weight)
        check_rms_norm(launch, padded, weight, output=padded.clone())
    not_aligned = torch.randn(hidden + 1).half()[1:]
    check_rms_norm(launch, half, not_aligned)


@pytest.mark.parametrize("has_weight", [True, False])
@pytest.mark.parametrize(("rows", "hidden"), SHORT, ids=str)
def test_rms_norm_of_short_rows_that_share_a_block(launch, rows, hidden, has_weight):
    weight = torch.randn(hidden) if has_weight else None
    check_rms_norm(launch, torch.randn(rows, hidden).half(), weight)


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


def test_rms_norm_of_rows_that_are_read_twice_and_lie_apart(launch):
    hidden = 8 * 4104  # too long for the registers
    check_rms_norm(launch, far_apart(hidden), None, output=far_apart(hidden))


@pytest.mark.parametrize("weight", [torch.ones(128), None], ids=["weight", "none"])
def test_rms_norm_of_squares_beyond_fp16(launch, weight):
    check_rms_norm(launch, torch.full((1, 128), 300.0, dtype=torch.half), weight)


def test_rms_norm_passes_on_what_the_gpu_says(launch):
    input, too_short = torch.randn(1, 128), torch.randn(127)
    arguments = (input, 128, too_short, input.clone(), 128, None, 1, 128, 1e-5)
    with pytest.raises(GpuFault, match="reads out of bounds"):
        launch("rms_norm", *arguments)


PATH = """
namespace opbook {
using Half = c10::Half;
template <bool kAligned>
const char* path(int64_t rows, int64_t hidden, int64_t has_weight, int64_t alignment,
                 double* found) {
  rms_norm_args<Half, Half> args{};
  args.rows = rows, args.hidden = hidden;
  if (has_weight) args.weight = reinterpret_cast<const Half*>(found);
  const Call call = call_of<kAligned>(args, alignment, false);
  const Path path = path_of(call);
  const dim3 block = launch_of<Half, Half, kAligned, NoResidual>(call).block;
  const auto keeps = [&](int64_t vectors, int kept, int threads) {
    found[2] = vectors, found[3] = kept, found[4] = threads;
  };
  found[0] = block.x, found[1] = block.y;
  if (path == Path::kFewRows) keeps(call.vectors, 2, kFewRowsThreads);
  if (path == Path::kNarrow) keeps(call.narrow_vectors, 6, 384);
  if (path == Path::kThreeVectors) keeps(call.vectors, 3, 256);
  if (path == Path::kTwoVectors) keeps(call.vectors, 2, 256);
  if (path == Path::kFourVectors) keeps(call.vectors, 4, 1024);
  if (path == Path::kTwoPasses) keeps(0, 0, 1024);
  return nullptr;
}
const char* launch_path(int64_t rows, int64_t hidden, int64_t has_weight,
                        int64_t alignment, double* found, void*) {
  return (alignment == 16 ? path<true> : path<false>)(rows, hidden, has_weight,
                                                      alignment, found);
}
}  // namespace opbook
"""


@pytest.fixture(scope="module")
def path(built):
    """The launcher's own source, asked which path a call takes."""
    gpu = built(CSRC / "rms_norm/rms_norm.cu", 64, PATH, types=())
    return functools.partial(gpu.launch, "launch_path")


@pytest.mark.parametrize("alignment", [16, 8, 4, 2])
@pytest.mark.parametrize("has_weight", [True, False])
@pytest.mark.parametrize("rows", [1, 257, 4097])
def test_a_block_is_as_large_as_its_kernel_was_compiled_for(
    path, rows, has_weight, alignment
):
    """Only a GPU without clusters would show a row of more than 2048 vectors."""
    edges = [1, 33, *(32 * n for n in range(1, 9)), *(256 * n for n in range(1, 20))]
    for vectors in sorted({edge + by for edge in edges for by in (0, 1)}):
        hidden = vectors * alignment // 2
        found = torch.full((5,), -1.0, dtype=torch.float64)
        path(rows, hidden, int(has_weight), alignment, found)
        threads, rows_of_block, needed, kept, most = map(int, found)
        assert kept >= 0, "the test knows the path"
        assert 1 <= threads * rows_of_block <= most, (hidden, kept)
        assert threads * kept >= needed, (hidden, kept)

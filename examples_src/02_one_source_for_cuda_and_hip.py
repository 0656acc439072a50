"""Write one kernel source for CUDA, HIP and the CPU
=================================================

Sum the rows of a matrix with one source file, which nvcc compiles for NVIDIA's GPUs,
clang for AMD's, and a C++ compiler for the CPU. Compiling for a GPU needs no GPU: you
see how many registers the kernel takes on each chip, and whether it spills. The kernel
then runs on the GPU if there is one, and otherwise on the CPU.

It needs torch and a C++ compiler, and compiles for the GPUs whose compiler is there.

.. topics:: 14 15 28 45 85
"""

import ctypes
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch.utils.cpp_extension import get_cxx_compiler

COMPILER = shutil.which(get_cxx_compiler().split()[-1])
if COMPILER is None:
    print("skipped: needs a C++ compiler (install g++)")
    sys.exit(77)

# %%
# A :term:`warp` sums a row: each lane adds up every n-th element, and the lanes then
# add their sums up by shuffles. A warp of an NVIDIA GPU has 32 lanes, and one of an
# MI200 or MI300 has 64. The head of the file names what differs between the compilers.
# On the CPU, a warp has one lane, so its loop of shuffles is empty.
#
# One library holds code for several GPUs, so its host code is told the width.

SOURCE = r"""
#include <cstdint>

#if defined(__HIP__)
#include <hip/hip_runtime.h>
#define cudaStream_t hipStream_t
#define cudaGetLastError hipGetLastError
#if defined(__GFX9__)
constexpr int kWarp = 64;
#else
constexpr int kWarp = 32;
#endif
__device__ float from_lane(float value, int mask) { return __shfl_xor(value, mask); }
#elif defined(__CUDACC__)
constexpr int kWarp = 32;
__device__ float from_lane(float value, int mask) {
  return __shfl_xor_sync(0xffffffff, value, mask);
}
#else
#define __device__
constexpr int kWarp = 1;
float from_lane(float value, int) { return value; }
#endif

__device__ float row_sum(const float* row, int64_t columns, int lane) {
  float sum = 0;
  for (int64_t i = lane; i < columns; i += kWarp) sum += row[i];
  for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += from_lane(sum, mask);
  return sum;
}

#if defined(__HIP__) || defined(__CUDACC__)
__global__ void __launch_bounds__(256) kernel(const float* input, float* output,
                                              int64_t rows, int64_t columns) {
  const int64_t row = blockIdx.x * int64_t{blockDim.y} + threadIdx.y;
  if (row >= rows) return;
  const float sum = row_sum(input + row * columns, columns, threadIdx.x);
  if (threadIdx.x == 0) output[row] = sum;
}

extern "C" int row_sums(const float* input, float* output, int64_t rows,
                        int64_t columns, int width, void* stream) {
  const dim3 block(width, 256 / width);
  const unsigned blocks = (rows + block.y - 1) / block.y;
  kernel<<<blocks, block, 0, (cudaStream_t)stream>>>(input, output, rows, columns);
  return cudaGetLastError();
}
#else
extern "C" int row_sums(const float* input, float* output, int64_t rows,
                        int64_t columns, int, void*) {
  for (int64_t row = 0; row < rows; ++row) {
    output[row] = row_sum(input + row * columns, columns, 0);
  }
  return 0;
}
#endif
"""
folder = tempfile.TemporaryDirectory()
file = Path(folder.name, "row_sums.cu")
file.write_text(SOURCE)

# %%
# ROCm's hipcc finds AMD's headers and device functions by itself. A clang without ROCm
# has to be led to those of the distribution: Debian's packages libamdhip64-dev and
# rocm-device-libs.


def amd_compiler() -> list[str]:
    """Return the command that compiles HIP, empty where something of it is missing."""
    if hipcc := shutil.which("hipcc"):
        return [hipcc, "-x", "hip"]
    clang = shutil.which("clang++-19") or shutil.which("clang++")
    functions = next(Path("/usr/lib").glob("*/amdgcn/bitcode/ockl.bc"), None)
    if clang is None or functions is None or not Path("/usr/include/hip").is_dir():
        return []
    link = ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(functions)]
    return [clang, "-x", "hip", "--hip-path=/usr", "-nogpulib", *link]


nvcc = [shutil.which("nvcc")] if shutil.which("nvcc") else []
amd = amd_compiler()

# %%
# Both compilers report what a kernel takes of the chip, in words of their own. A kernel
# spills if its values do not fit the registers and wait in memory. For a larger kernel,
# and for its instructions, see :doc:`30_what_the_compiler_made`.

nvcc_report = ["-cubin", "-arch=sm_90", "-Xptxas", "-v"]
amd_report = ["--offload-arch=gfx942", "--offload-device-only", "-S"]
amd_report += ["-Rpass-analysis=kernel-resource-usage"]
targets = {
    "H100, sm_90": (nvcc, nvcc_report, r"Used (\d+) reg", r"(\d+) bytes spill stores"),
    "MI300X, gfx942": (amd, amd_report, r"VGPRs: (\d+)", r"VGPRs Spill: (\d+)"),
}
for target, (compiler, flags, registers, spills) in targets.items():
    if not compiler:
        print(f"{target}: left out, no compiler for it")
        continue
    command = [
        *compiler,
        "-O3",
        "-std=c++17",
        *flags,
        file,
        "-o",
        file.with_suffix(".o"),
    ]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    taken, spilled = (re.search(word, said)[1] for word in (registers, spills))
    print(f"{target}: {taken} registers for each thread, {spilled} spilled")

# %%
# Now build a library for what is in this machine, and load it. It knows nothing of
# PyTorch, so it gets addresses, and the stream in which PyTorch works.

gpu = torch.cuda.is_available() and (amd if torch.version.hip else nvcc)
if not gpu:
    build = [COMPILER, "-x", "c++", "-fPIC"]
elif torch.version.hip:
    build = [*amd, "--offload-arch=native", "-fPIC"]
else:
    build = [*nvcc, "-arch=native", "-Xcompiler", "-fPIC"]
library = Path(folder.name, "row_sums.so")
subprocess.run(
    [*build, "-O3", "-std=c++17", "-shared", file, "-o", library], check=True
)
native = ctypes.CDLL(str(library))


def row_sums(input: torch.Tensor) -> torch.Tensor:
    """Return the sums of the rows of a contiguous fp32 matrix."""
    if input.dim() != 2 or input.dtype != torch.float32 or not input.is_contiguous():
        given = f"{input.dtype} of shape {[*input.shape]}, strides {input.stride()}"
        raise ValueError(
            f"row_sums: expected a contiguous fp32 matrix, but got {given}"
        )
    output, width, stream = input.new_empty(len(input)), 1, None
    if input.is_cuda:
        width = torch.cuda.get_device_properties(input.device).warp_size
        stream = ctypes.c_void_p(torch.cuda.current_stream(input.device).cuda_stream)
    pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (input, output))
    sizes = map(ctypes.c_int64, input.shape)
    with torch.cuda.device_of(input):
        error = native.row_sums(*pointers, *sizes, width, stream) if len(input) else 0
    if error:
        raise RuntimeError(f"row_sums: the launch failed with error {error}")
    return output


# %%
# The sums agree with PyTorch's, whose order of additions is another one. This matrix
# has rows that are no multiple of any warp.

input = torch.randn(1000, 777, device="cuda" if gpu else "cpu")
torch.testing.assert_close(row_sums(input), input.sum(1), rtol=1e-5, atol=1e-4)
print(f"{len(input)} rows on {input.device} agree with PyTorch")
try:
    row_sums(input.t())
except ValueError as error:
    print(error)

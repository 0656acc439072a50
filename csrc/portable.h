// The one place that knows CUDA from HIP from the CPU. A kernel file includes this
// header, speaks the gpu* names below, and compiles with nvcc, with HIP's clang, and
// with a plain C++ compiler, which sees only the parts shared with the CPU.
#pragma once

#include <cstdint>

#if defined(__HIP__)
#include <hip/hip_runtime.h>
#define OPBOOK_GPU_COMPILER 1
using gpuStream_t = hipStream_t;
#define gpuGetLastError hipGetLastError
#define gpuGetErrorString hipGetErrorString
#define gpuSuccess hipSuccess
#elif defined(__CUDACC__)
#include <cuda_runtime.h>
#define OPBOOK_GPU_COMPILER 1
using gpuStream_t = cudaStream_t;
#define gpuGetLastError cudaGetLastError
#define gpuGetErrorString cudaGetErrorString
#define gpuSuccess cudaSuccess
#endif

#if defined(OPBOOK_GPU_COMPILER)
#define OPBOOK_HOST_DEVICE __host__ __device__
#else
#define OPBOOK_HOST_DEVICE
#endif

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

namespace opbook {

// Sums run in fp32 for fp16, bf16 and fp32, and in fp64 for fp64.
template <typename scalar_t>
struct Accumulate {
  using type = float;
};
template <>
struct Accumulate<double> {
  using type = double;
};
template <typename scalar_t>
using accumulate_t = typename Accumulate<scalar_t>::type;

#if defined(OPBOOK_GPU_COMPILER)

// AMD's CDNA chips (gfx9) run 64 lanes in lockstep, RDNA and NVIDIA 32. The host pass
// of a HIP compile has no chip, so this is a constant of device code alone.
#if defined(__HIP__) && defined(__GFX9__)
constexpr int kWarpSize = 64;
#else
constexpr int kWarpSize = 32;
#endif

// Host code sizes shared arrays for the narrowest warp and blocks for the widest one.
constexpr int kMinWarpSize = 32;
constexpr int kMaxWarpSize = 64;
constexpr int kMaxThreads = 1024;

// What the runtime says of the last launch: null, or why it could not start.
inline const char* launch_error() {
  const auto status = gpuGetLastError();
  return status == gpuSuccess ? nullptr : gpuGetErrorString(status);
}

template <typename T>
__device__ inline T shuffle_xor(T value, int lane_mask) {
#if defined(__HIP__)
  return __shfl_xor(value, lane_mask, kWarpSize);
#else
  return __shfl_xor_sync(0xffffffff, value, lane_mask);
#endif
}

// Every lane of a warp gets the sum over its lanes.
template <typename T>
__device__ inline T warp_sum(T value) {
#pragma unroll
  for (int lane_mask = kWarpSize / 2; lane_mask > 0; lane_mask /= 2) {
    value += shuffle_xor(value, lane_mask);
  }
  return value;
}

// Every thread of a block gets the sum over the block, added in a fixed order.
// The block must be a whole number of warps; a second call needs a barrier before it.
template <typename T>
__device__ inline T block_sum(T value) {
  __shared__ T partial[kMaxThreads / kMinWarpSize];
  value = warp_sum(value);
  if (threadIdx.x % kWarpSize == 0) partial[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  T sum = 0;
  const int num_warps = blockDim.x / kWarpSize;
  for (int warp = 0; warp < num_warps; ++warp) sum += partial[warp];
  return sum;
}

#endif  // OPBOOK_GPU_COMPILER

// The widest load or store a GPU thread issues is 16 bytes.
constexpr int kVectorBytes = 16;

// N neighbouring elements, aligned so that the compiler moves them 16 bytes at a time.
template <typename T, int N>
struct alignas(sizeof(T) * N < kVectorBytes ? sizeof(T) * N : kVectorBytes) Vector {
  T data[N];
};

inline bool is_vector_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kVectorBytes == 0;
}

}  // namespace opbook

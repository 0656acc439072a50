// What differs between CUDA, HIP and a C++ compiler: names, the width of a warp, fast
// arithmetic. A kernel file includes this header, uses the gpu* names below, and
// compiles with nvcc, HIP's clang, and a C++ compiler, which sees no kernels.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__HIP__)
#include <hip/hip_runtime.h>
#define OPBOOK_GPU_COMPILER 1
using gpuStream_t = hipStream_t;
#define gpuDeviceGetAttribute hipDeviceGetAttribute
#define gpuDeviceMultiprocessorCount hipDeviceAttributeMultiprocessorCount
#define gpuGetDevice hipGetDevice
#define gpuGetLastError hipGetLastError
#define gpuGetErrorString hipGetErrorString
#define gpuSuccess hipSuccess
#elif defined(__CUDACC__)
#include <cuda_runtime.h>

#include <string>
#define OPBOOK_GPU_COMPILER 1
using gpuStream_t = cudaStream_t;
#define gpuDeviceGetAttribute cudaDeviceGetAttribute
#define gpuDeviceMultiprocessorCount cudaDevAttrMultiProcessorCount
#define gpuGetDevice cudaGetDevice
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

// A wave of AMD's CDNA chips (gfx9) has 64 lanes, one of RDNA 32, as NVIDIA's warps.
// The host pass of a HIP compile knows no chip, and always has 32 here: only device
// code may use this constant.
#if defined(__HIP__) && defined(__GFX9__)
constexpr int kWarpSize = 64;
#else
constexpr int kWarpSize = 32;
#endif

// Host code sizes shared arrays for the narrowest warp and blocks for the widest one.
constexpr int kMinWarpSize = 32;
#if defined(__HIP__)
constexpr int kMaxWarpSize = 64;
#else
constexpr int kMaxWarpSize = 32;
#endif
constexpr int kMaxThreads = 1024;

// Blocks for `steps` steps of a grid-stride loop: one thread a step, up to a limit that
// is far more blocks than any GPU holds at once. Beyond it, threads take several steps.
inline int64_t blocks_for(int64_t steps, int threads) {
  constexpr int64_t kMaxBlocks = 65536;
  const int64_t blocks = (steps + threads - 1) / threads;
  return blocks < kMaxBlocks ? blocks : kMaxBlocks;
}

// Multiprocessors (AMD: compute units) of the current device.
inline int multiprocessors() {
  int device = 0, count = 1;
  if (gpuGetDevice(&device) == gpuSuccess) {
    if (gpuDeviceGetAttribute(&count, gpuDeviceMultiprocessorCount, device) !=
        gpuSuccess) {
      count = 1;
    }
  }
  return count;
}

#if defined(__CUDA_ARCH_LIST__)
// CUDA's words for a kernel without code for the device, and the architectures that
// they leave out. nvcc makes the list: 900 is compute capability 9.0.
inline const char* no_code_for_device(const char* words) {
  constexpr int kCompiledFor[] = {__CUDA_ARCH_LIST__};
  static thread_local std::string text;
  int device = 0, major = 0, minor = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  const auto name = [](int major, int minor) {
    return std::to_string(major) + "." + std::to_string(minor);
  };
  text = std::string(words) + ": the device has compute capability " +
         name(major, minor) + ", the kernels are compiled for";
  for (const int arch : kCompiledFor) text += " " + name(arch / 100, arch / 10 % 10);
  return text.c_str();
}
#endif

// Null, or what went wrong: the last launch could not start, or something failed before
// it and its error was not read.
inline const char* launch_error() {
  const auto status = gpuGetLastError();
#if defined(__CUDA_ARCH_LIST__)
  if (status == cudaErrorNoKernelImageForDevice) {
    return no_code_for_device(cudaGetErrorString(status));
  }
#endif
  return status == gpuSuccess ? nullptr : gpuGetErrorString(status);
}

#endif  // OPBOOK_GPU_COMPILER

// 1 / x and 2^x. A GPU has one instruction for each, which errs by few units in the
// last place and takes subnormal numbers for zero. The CPU's results err by at most one
// unit.
OPBOOK_HOST_DEVICE inline float fast_reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#elif defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_rcpf(x);
#else
  return 1.0f / x;
#endif
}

OPBOOK_HOST_DEVICE inline float fast_exp2(float x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#elif defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_exp2f(x);
#else
  return std::exp2(x);
#endif
}

}  // namespace opbook

// CUDA's names for HIP, and the width of a warp. What includes it speaks CUDA, and
// compiles with nvcc, HIP's clang, and a C++ compiler, which sees no kernels.
#pragma once

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <cstdint>
#include <string>
#include <type_traits>

#if defined(__HIP__)
#include <hip/hip_runtime.h>
#define OPBOOK_GPU 1
#define cudaStream_t hipStream_t
#define cudaDeviceGetAttribute hipDeviceGetAttribute
#define cudaDevAttrMultiProcessorCount hipDeviceAttributeMultiprocessorCount
#define cudaGetDevice hipGetDevice
#define cudaGetLastError hipGetLastError
#define cudaGetErrorString hipGetErrorString
#define cudaSuccess hipSuccess
#elif defined(__CUDACC__)
#include <cuda_runtime.h>
#define OPBOOK_GPU 1
#endif

#if defined(OPBOOK_GPU)
#define OPBOOK_HOST_DEVICE __host__ __device__
#else
#define OPBOOK_HOST_DEVICE
#endif

namespace opbook {

// The type to compute in: fp64 for fp64, and fp32 for the others.
template <typename T>
using compute_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

#if defined(OPBOOK_GPU)

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
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
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
  const auto status = cudaGetLastError();
#if defined(__CUDA_ARCH_LIST__)
  if (status == cudaErrorNoKernelImageForDevice) {
    return no_code_for_device(cudaGetErrorString(status));
  }
#endif
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

#endif  // OPBOOK_GPU

}  // namespace opbook

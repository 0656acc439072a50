// The one file that knows CUDA from HIP from the CPU. What includes it speaks CUDA, and
// compiles with nvcc, HIP's clang, and a C++ compiler, which sees no kernels.
#pragma once

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__HIP__)
#include <hip/hip_runtime.h>
#define STARTER_GPU 1
#define cudaStream_t hipStream_t
#define cudaGetLastError hipGetLastError
#define cudaGetErrorString hipGetErrorString
#define cudaSuccess hipSuccess
#elif defined(__CUDACC__)
#include <cuda_runtime.h>
#define STARTER_GPU 1
#endif

#if defined(STARTER_GPU)
#define STARTER_HOST_DEVICE __host__ __device__
#else
#define STARTER_HOST_DEVICE
#endif

namespace starter {

// The type to compute in: fp64 for fp64, and fp32 for the others.
template <typename T>
using compute_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

// e^x and x / y. In fp32 on GPUs less exact; on NVIDIA's, x / y is 0 if y > 2^126.
STARTER_HOST_DEVICE inline double fast_exp(double x) { return std::exp(x); }
STARTER_HOST_DEVICE inline double fast_divide(double x, double y) { return x / y; }
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
STARTER_HOST_DEVICE inline float fast_exp(float x) { return __expf(x); }
STARTER_HOST_DEVICE inline float fast_divide(float x, float y) {
  return __fdividef(x, y);
}
#else
template <typename To, typename From>
STARTER_HOST_DEVICE To same_bits(From from) {
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

// Without a branch or a call, so that a C++ compiler turns loops into vector
// instructions. e^x is 2^n * e^r for an integer n and |r| <= ln(2) / 2, where five
// terms are enough.
STARTER_HOST_DEVICE inline float fast_exp(float x) {
  x = x > 89 ? 89 : x < -104 ? -104 : x;  // what is beyond is infinite, or 0
  constexpr float kShift = 0x1.8p23f;  // a sum with it has an integer in its low bits
  const float shifted = x * 0x1.715476p0f + kShift, n = shifted - kShift;
  const float r =
      x - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f;  // n * ln(2), in two parts
  const float tail = 0.1666652063f +
                     r * (0.04166838805f + r * (0.008368716887f + r * 0.001381459847f));
  const float power = r * r * (0.4999999345f + r * tail) + r + 1;
  const auto two_to = [](int32_t e) { return same_bits<float>((e + 127) << 23); };
  const int32_t e = same_bits<int32_t>(shifted) - same_bits<int32_t>(kShift);
  return power * two_to(e >> 1) * two_to(e - (e >> 1));  // alone, 2^n may be too small
}
STARTER_HOST_DEVICE inline float fast_divide(float x, float y) { return x / y; }
#endif

#if defined(STARTER_GPU)
// The widest load or store of one GPU thread is 16 bytes, at a multiple of 16.
constexpr int kVectorBytes = 16;

// As many blocks as `count` elements need.
inline int64_t blocks_for(int64_t count, int64_t elements_per_block) {
  return (count + elements_per_block - 1) / elements_per_block;
}

// Null, or why the last kernel could not be launched.
inline const char* launch_error() {
  const auto status = cudaGetLastError();
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}
#endif

}  // namespace starter

// The epilogue of linear_gelu: GELU of every element (Hendrycks and Gimpel, "Gaussian
// Error Linear Units", arXiv:1606.08415), exact or in the tanh form of section 2.
#pragma once

#include <cmath>

#include "../elementwise.h"

namespace opbook {

enum class GeluForm { kErf, kTanh };

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

// [math] x * Phi(x), once, for every device
// Phi, the distribution function of the standard normal distribution. Its relative
// error is below 5e-6 for |x| <= 8, and below 2e-4 where bf16 still has a result:
// enough for 16 bits. The form is that of Abramowitz and Stegun, 7.1.26, for erfc:
// exp(-z^2) * series(t), t = 1 / (1 + p z). p and the terms make the relative error of
// Phi(-|x|) small.
OPBOOK_HOST_DEVICE inline float normal_distribution(float x) {
  const float t = fast_reciprocal(1.0f + 0.30052038f * std::fabs(x));
  float series = -0.08214584f;
  series = series * t + 0.23000233f;
  series = series * t - 0.03370519f;
  series = series * t + 0.15394582f;
  series = series * t + 0.11135593f;
  series = series * t + 0.12054613f;
  const float tail = series * t * fast_exp2(-0.72134752f * x * x);  // exp(-x^2 / 2)
  return x < 0 ? tail : 1.0f - tail;
}

// GELU, computed in compute_t<T>.
template <GeluForm kForm>
struct Gelu {
  template <typename T>
  OPBOOK_HOST_DEVICE T operator()(T element) const {
    using C = compute_t<T>;
    const C x = static_cast<C>(element);
    if constexpr (kForm == GeluForm::kErf && sizeof(T) == 2) {
      return static_cast<T>(x * normal_distribution(x));  // half of erfc's instructions
    } else if constexpr (kForm == GeluForm::kErf) {
      constexpr C kSqrtHalf = 0.70710678118654752440;  // sqrt(1 / 2)
      // (1 + erf(u)) / 2 loses every digit where erf(u) nears -1; erfc(-u) / 2 none.
      return C(0.5) * x * std::erfc(-x * kSqrtHalf);
    } else {
      constexpr C kSqrtTwoOverPi = 0.79788456080286535588;  // sqrt(2 / pi)
      constexpr C kCubic = 0.044715;
      const C u = kSqrtTwoOverPi * (x + kCubic * x * x * x);
      // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), for the same reason.
      if constexpr (sizeof(T) == 2) {
        const C power = fast_exp2(-2.88539008f * u);  // 2 log2(e) u
        return static_cast<T>(x * fast_reciprocal(1.0f + power));
      } else {
        return x / (C(1) + std::exp(C(-2) * u));
      }
    }
  }
};
// [/math]

// Writes GELU of the `numel` neighbouring elements of `input` to `output`, which may be
// `input` itself; in the tanh form if `tanh_form`. Pointers are device memory, `stream`
// is a cudaStream_t or hipStream_t. Returns null, or the runtime's words for a launch
// error.
template <typename T>
const char* launch_linear_gelu(const T* input, T* output, int64_t numel, bool tanh_form,
                               void* stream);

}  // namespace opbook

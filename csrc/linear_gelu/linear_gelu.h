// The epilogue of linear_gelu: GELU of every element (Hendrycks and Gimpel, "Gaussian
// Error Linear Units", arXiv:1606.08415), exact or in the tanh form of section 2.
#pragma once

#include <cmath>

#include "../vectors.h"

namespace opbook {

enum class Gelu { kErf, kTanh };

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

// GELU for a result of type T.
template <Gelu kForm, typename T>
OPBOOK_HOST_DEVICE inline compute_t<T> gelu(compute_t<T> x) {
  using C = compute_t<T>;
  if constexpr (kForm == Gelu::kErf && sizeof(T) == 2) {
    return x * normal_distribution(x);  // half the instructions of erfc
  } else if constexpr (kForm == Gelu::kErf) {
    constexpr C kSqrtHalf = 0.70710678118654752440;  // sqrt(1 / 2)
    // (1 + erf(u)) / 2 loses every digit where erf(u) nears -1; erfc(-u) / 2 none.
    return C(0.5) * x * std::erfc(-x * kSqrtHalf);
  } else {
    constexpr C kSqrtTwoOverPi = 0.79788456080286535588;  // sqrt(2 / pi)
    constexpr C kCubic = 0.044715;
    const C u = kSqrtTwoOverPi * (x + kCubic * x * x * x);
    // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), for the same reason.
    if constexpr (sizeof(T) == 2) {
      return x * fast_reciprocal(1.0f + fast_exp2(-2.88539008f * u));  // 2 log2(e) u
    } else {
      return x / (C(1) + std::exp(C(-2) * u));
    }
  }
}
// [/math]

// Writes GELU of the `numel` neighbouring elements of `input` to `output`, which may be
// `input` itself; in the tanh form if `tanh_form`. Pointers are device memory, `stream`
// is a cudaStream_t or hipStream_t. Returns null, or the runtime's words for a launch
// error.
template <typename T>
const char* launch_linear_gelu(const T* input, T* output, int64_t numel, bool tanh_form,
                               void* stream);

#if defined(OPBOOK_GPU)

// A thread takes vectors of kWidth elements, then single ones of the tail.
template <typename T, Gelu kForm, int kWidth>
__global__ void __launch_bounds__(kMaxThreads)
    gelu_kernel(const T* input, T* output, int64_t vectors, int64_t numel) {
  using C = compute_t<T>;
  using Elements = Vector<T, kWidth>;

  const int64_t first = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  const int64_t threads = gridDim.x * static_cast<int64_t>(blockDim.x);
  for (int64_t i = first; i < vectors; i += threads) {
    Elements elements = reinterpret_cast<const Elements*>(input)[i];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const C x = static_cast<C>(elements.data[j]);
      elements.data[j] = static_cast<T>(gelu<kForm, T>(x));
    }
    reinterpret_cast<Elements*>(output)[i] = elements;
  }
  for (int64_t i = vectors * kWidth + first; i < numel; i += threads) {
    output[i] = static_cast<T>(gelu<kForm, T>(static_cast<C>(input[i])));
  }
}

#endif  // OPBOOK_GPU

}  // namespace opbook

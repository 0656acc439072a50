// The epilogue of linear_gelu: GELU of every element (Hendrycks and Gimpel, "Gaussian
// Error Linear Units", arXiv:1606.08415), exact or in the tanh form of section 2.
#pragma once

#include <cmath>

#include "../portable.h"

namespace opbook {

enum class Gelu { kErf, kTanh };

// [math] x * Phi(x), once, for every device
template <Gelu kForm, typename acc_t>
OPBOOK_HOST_DEVICE inline acc_t gelu(acc_t x) {
  if constexpr (kForm == Gelu::kErf) {
    constexpr acc_t kSqrtHalf = 0.70710678118654752440;  // sqrt(1 / 2)
    // (1 + erf(u)) / 2 loses every digit where erf(u) nears -1; erfc(-u) / 2 none.
    return acc_t(0.5) * x * std::erfc(-x * kSqrtHalf);
  } else {
    constexpr acc_t kSqrtTwoOverPi = 0.79788456080286535588;  // sqrt(2 / pi)
    constexpr acc_t kCubic = 0.044715;
    const acc_t u = kSqrtTwoOverPi * (x + kCubic * x * x * x);
    // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), for the same reason.
    return x / (acc_t(1) + std::exp(acc_t(-2) * u));
  }
}
// [/math]

// [launcher]
// Writes GELU of the `numel` neighbouring elements of `input` to `output`, which may be
// `input` itself; in the tanh form if `tanh_form`. Pointers are device memory, `stream`
// is a cudaStream_t or hipStream_t. Returns null, or the runtime's words for a launch
// error.
template <typename scalar_t>
const char* launch_linear_gelu(const scalar_t* input, scalar_t* output, int64_t numel,
                               bool tanh_form, void* stream);
// [/launcher]

#if defined(OPBOOK_GPU_COMPILER)

// [kernel] a thread takes vectors of kWidth elements, then single ones of the tail
template <typename scalar_t, Gelu kForm, int kWidth>
__global__ void __launch_bounds__(kMaxThreads)
    gelu_kernel(const scalar_t* input, scalar_t* output, int64_t vectors,
                int64_t numel) {
  using acc_t = accumulate_t<scalar_t>;
  using Elements = Vector<scalar_t, kWidth>;

  const int64_t first = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  const int64_t threads = gridDim.x * static_cast<int64_t>(blockDim.x);
  for (int64_t i = first; i < vectors; i += threads) {
    Elements elements = reinterpret_cast<const Elements*>(input)[i];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const acc_t x = static_cast<acc_t>(elements.data[j]);
      elements.data[j] = static_cast<scalar_t>(gelu<kForm>(x));
    }
    reinterpret_cast<Elements*>(output)[i] = elements;
  }
  for (int64_t i = vectors * kWidth + first; i < numel; i += threads) {
    output[i] = static_cast<scalar_t>(gelu<kForm>(static_cast<acc_t>(input[i])));
  }
}
// [/kernel]

#endif  // OPBOOK_GPU_COMPILER

}  // namespace opbook

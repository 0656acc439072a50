// softcap: cap * tanh(input / cap) of each element, its gradient, and the GPU kernels.
#pragma once

#include <cmath>

#include "../portable.h"

namespace opbook {

// [math] one element, on every device
template <typename scalar_t>
OPBOOK_HOST_DEVICE inline scalar_t softcap_value(scalar_t input, double cap) {
  using acc_t = accumulate_t<scalar_t>;
  const acc_t limit = static_cast<acc_t>(cap);
  return static_cast<scalar_t>(limit * std::tanh(static_cast<acc_t>(input) / limit));
}

template <typename scalar_t>
OPBOOK_HOST_DEVICE inline scalar_t softcap_gradient(scalar_t grad, scalar_t input,
                                                    double cap) {
  using acc_t = accumulate_t<scalar_t>;
  const acc_t limit = static_cast<acc_t>(cap);
  const acc_t ratio = std::tanh(static_cast<acc_t>(input) / limit);
  return static_cast<scalar_t>(static_cast<acc_t>(grad) * (1 - ratio * ratio));
}
// [/math]

// The GPU launchers, for `count` > 0 neighbouring elements of device memory and a CUDA
// or HIP stream. They return null, or the runtime's words for a launch error.
template <typename scalar_t>
const char* launch_softcap(const scalar_t* input, scalar_t* output, int64_t count,
                           double cap, void* stream);
template <typename scalar_t>
const char* launch_softcap_backward(const scalar_t* grad, const scalar_t* input,
                                    scalar_t* output, int64_t count, double cap,
                                    void* stream);

#if defined(OPBOOK_GPU_COMPILER)

// A thread computes every n-th element, where n is the number of threads.
template <typename scalar_t>
__global__ void softcap_kernel(const scalar_t* input, scalar_t* output, int64_t count,
                               double cap) {
  const int64_t first = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  const int64_t threads = gridDim.x * static_cast<int64_t>(blockDim.x);
  for (int64_t i = first; i < count; i += threads) {
    output[i] = softcap_value(input[i], cap);
  }
}

template <typename scalar_t>
__global__ void softcap_backward_kernel(const scalar_t* grad, const scalar_t* input,
                                        scalar_t* output, int64_t count, double cap) {
  const int64_t first = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  const int64_t threads = gridDim.x * static_cast<int64_t>(blockDim.x);
  for (int64_t i = first; i < count; i += threads) {
    output[i] = softcap_gradient(grad[i], input[i], cap);
  }
}

#endif  // OPBOOK_GPU_COMPILER

}  // namespace opbook

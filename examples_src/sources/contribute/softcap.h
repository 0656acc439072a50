// softcap: cap * tanh(input / cap) of each element, its gradient, and the GPU kernels.
#pragma once

#include <cmath>

#include "../portable.h"

namespace opbook {

// [math] one element, on every device
template <typename T>
OPBOOK_HOST_DEVICE inline T softcap_value(T input, double cap) {
  using C = compute_t<T>;
  const C limit = static_cast<C>(cap);
  return static_cast<T>(limit * std::tanh(static_cast<C>(input) / limit));
}

template <typename T>
OPBOOK_HOST_DEVICE inline T softcap_gradient(T grad, T input, double cap) {
  using C = compute_t<T>;
  const C limit = static_cast<C>(cap);
  const C ratio = std::tanh(static_cast<C>(input) / limit);
  return static_cast<T>(static_cast<C>(grad) * (1 - ratio * ratio));
}
// [/math]

// The GPU launchers, for `count` > 0 neighbouring elements of device memory and a CUDA
// or HIP stream. They return null, or the runtime's words for a launch error.
template <typename T>
const char* launch_softcap(const T* input, T* output, int64_t count, double cap,
                           void* stream);
template <typename T>
const char* launch_softcap_backward(const T* grad, const T* input, T* output,
                                    int64_t count, double cap, void* stream);

#if defined(OPBOOK_GPU)

// A thread computes every n-th element, where n is the number of threads.
template <typename T>
__global__ void softcap_kernel(const T* input, T* output, int64_t count, double cap) {
  const int64_t first = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  const int64_t threads = gridDim.x * static_cast<int64_t>(blockDim.x);
  for (int64_t i = first; i < count; i += threads) {
    output[i] = softcap_value(input[i], cap);
  }
}

template <typename T>
__global__ void softcap_backward_kernel(const T* grad, const T* input, T* output,
                                        int64_t count, double cap) {
  const int64_t first = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  const int64_t threads = gridDim.x * static_cast<int64_t>(blockDim.x);
  for (int64_t i = first; i < count; i += threads) {
    output[i] = softcap_gradient(grad[i], input[i], cap);
  }
}

#endif  // OPBOOK_GPU

}  // namespace opbook

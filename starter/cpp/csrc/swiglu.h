// swiglu: SiLU(gate) * up, its gradients, and the GPU kernels that compute them.
#pragma once

#include "vectors.h"

namespace starter {

// [math] one element, on every device; `limit` is infinity where there is none
template <typename T>
STARTER_HOST_DEVICE T swiglu_value(T gate, T up, compute_t<T> limit) {
  compute_t<T> g = gate, u = up;
  if (g > limit) g = limit;
  if (u > limit) u = limit;
  if (u < -limit) u = -limit;
  return static_cast<T>(fast_divide(g, 1 + fast_exp(-g)) * u);
}

template <typename T>  // [backward]
STARTER_HOST_DEVICE void swiglu_gradients(T grad, T gate, T up, compute_t<T> limit,
                                          T& grad_gate, T& grad_up) {
  compute_t<T> d = grad, g = gate, u = up;
  const bool gate_is_clamped = g > limit, up_is_clamped = std::abs(u) > limit;
  if (g > limit) g = limit;
  if (u > limit) u = limit;
  if (u < -limit) u = -limit;
  const compute_t<T> sigmoid = fast_divide(1, 1 + fast_exp(-g));
  const compute_t<T> slope = sigmoid * (1 + g * (1 - sigmoid));  // of SiLU
  // What was clamped no longer depends on its input: its gradient is zero.
  grad_gate = static_cast<T>(gate_is_clamped ? 0 : d * u * slope);
  grad_up = static_cast<T>(up_is_clamped ? 0 : d * g * sigmoid);
}  // [/backward]
// [/math]

// [gpu] The GPU launchers, for `count` > 0 elements of device memory and a CUDA or HIP
// stream. Outputs are aligned, as all that PyTorch allocates; a gradient that nobody
// needs is null. They return null, or why the launch failed.
template <typename T>
const char* launch_swiglu(View<T> gate, View<T> up, T* output, int64_t count,
                          double limit, void* stream);
template <typename T>  // [backward]
const char* launch_swiglu_backward(View<T> grad, View<T> gate, View<T> up, T* grad_gate,
                                   T* grad_up, int64_t count, double limit,
                                   void* stream);  // [/backward]

#if defined(STARTER_GPU)
// [kernels] a thread computes N neighbouring elements, or those that are left
template <int N, typename T>
__global__ void swiglu_kernel(View<T> gate, View<T> up, T* output, int64_t count,
                              compute_t<T> limit) {
  const int64_t first = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) * N;
  if (first >= count) return;
  const auto g = load<N>(gate, first, count), u = load<N>(up, first, count);
  Vector<T, N> result;
  for (int i = 0; i < N; ++i) {
    result.data[i] = swiglu_value(g.data[i], u.data[i], limit);
  }
  store(output, first, count, result);
}

template <int N, typename T>  // [backward]
__global__ void swiglu_backward_kernel(View<T> grad, View<T> gate, View<T> up,
                                       T* grad_gate, T* grad_up, int64_t count,
                                       compute_t<T> limit) {
  const int64_t first = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) * N;
  if (first >= count) return;
  const auto d = load<N>(grad, first, count);
  const auto g = load<N>(gate, first, count), u = load<N>(up, first, count);
  Vector<T, N> dg, du;
  for (int i = 0; i < N; ++i) {
    swiglu_gradients(d.data[i], g.data[i], u.data[i], limit, dg.data[i], du.data[i]);
  }
  if (grad_gate) store(grad_gate, first, count, dg);
  if (grad_up) store(grad_up, first, count, du);
}  // [/backward]
// [/kernels]
#endif  // [/gpu]

}  // namespace starter

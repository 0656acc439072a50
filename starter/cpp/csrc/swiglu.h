// swiglu: SiLU(gate) * up and its gradients, for CPUs and GPUs.
#pragma once

#include "elementwise.h"  // [gpu/]
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

// [args] What a kernel reads and writes: `count` elements. The outputs are contiguous
// and aligned, as all that PyTorch allocates.
template <typename T>
struct swiglu_args {
  View<T> gate, up;
  T* output;
  int64_t count;
  compute_t<T> limit;
#if defined(STARTER_GPU)  // [gpu]
  using Element = T;
  bool is_aligned() const { return are_aligned(gate, up); }

  template <int N>
  __device__ void compute(int64_t first) const {
    const auto g = load<N>(gate, first, count), u = load<N>(up, first, count);
    Vector<T, N> result;
    for (int i = 0; i < N; ++i)
      result.data[i] = swiglu_value(g.data[i], u.data[i], limit);
    store(output, first, count, result);
  }
#endif  // [/gpu]
};
// [/args]

template <typename T>  // [backward]
struct swiglu_backward_args {
  View<T> grad, gate, up;
  T *grad_gate, *grad_up;  // null if nobody needs it
  int64_t count;
  compute_t<T> limit;
#if defined(STARTER_GPU)  // [gpu]
  using Element = T;
  bool is_aligned() const { return are_aligned(grad, gate, up); }

  template <int N>
  __device__ void compute(int64_t first) const {
    const auto d = load<N>(grad, first, count);
    const auto g = load<N>(gate, first, count), u = load<N>(up, first, count);
    Vector<T, N> dg, du;
    for (int i = 0; i < N; ++i)
      swiglu_gradients(d.data[i], g.data[i], u.data[i], limit, dg.data[i], du.data[i]);
    if (grad_gate) store(grad_gate, first, count, dg);
    if (grad_up) store(grad_up, first, count, du);
  }
#endif  // [/gpu]
};  // [/backward]

}  // namespace starter

// The GPU launchers of swiglu, which take pointers and a stream, and no tensors.
#include "swiglu.h"

namespace starter {

constexpr int kThreads = 256;

template <typename T>
const char* launch_swiglu(View<T> gate, View<T> up, T* output, int64_t count,
                          double limit, void* stream) {
  constexpr int kWidth = kVectorBytes / sizeof(T);
  const bool wide = is_aligned(gate) && is_aligned(up);
  const auto kernel = wide ? swiglu_kernel<kWidth, T> : swiglu_kernel<1, T>;
  const int64_t blocks = blocks_for(count, kThreads * (wide ? kWidth : 1));
  kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(gate, up, output,
                                                                     count, limit);
  return launch_error();
}

template <typename T>  // [backward]
const char* launch_swiglu_backward(View<T> grad, View<T> gate, View<T> up, T* grad_gate,
                                   T* grad_up, int64_t count, double limit,
                                   void* stream) {
  constexpr int kWidth = kVectorBytes / sizeof(T);
  const bool wide = is_aligned(grad) && is_aligned(gate) && is_aligned(up);
  const auto kernel =
      wide ? swiglu_backward_kernel<kWidth, T> : swiglu_backward_kernel<1, T>;
  const int64_t blocks = blocks_for(count, kThreads * (wide ? kWidth : 1));
  kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      grad, gate, up, grad_gate, grad_up, count, limit);
  return launch_error();
}  // [/backward]

// Compiles a launcher for the types that swiglu_op.cpp calls it with.
#define STARTER_INSTANTIATE(launch)                               \
  template decltype(launch<c10::Half>) launch<c10::Half>;         \
  template decltype(launch<c10::BFloat16>) launch<c10::BFloat16>; \
  template decltype(launch<float>) launch<float>;                 \
  template decltype(launch<double>) launch<double>;
STARTER_INSTANTIATE(launch_swiglu)
STARTER_INSTANTIATE(launch_swiglu_backward)  // [backward/]

}  // namespace starter

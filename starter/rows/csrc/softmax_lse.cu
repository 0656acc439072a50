// The GPU kernels of softmax_lse and their launchers, which know nothing of tensors.
#include "softmax_lse.h"

namespace starter {

template <int N, typename T>
__global__ void __launch_bounds__(kMaxBlock)
    softmax_lse_kernel(softmax_lse_args<T> args) {
  const int64_t row = row_of_thread();
  const bool has_row = row < args.rows;
  const Share share = share_of_thread<N>(has_row, args.columns);
  const auto part = softmax_lse_part<N>(args, row, share);
  const auto all = reduce_row(part, softmax_lse_merge<compute_t<T>>);
  if (has_row) softmax_lse_write<N>(args, row, share, all);
}

template <int N, typename T>
__global__ void __launch_bounds__(kMaxBlock)
    softmax_lse_backward_kernel(softmax_lse_backward_args<T> args) {
  using C = compute_t<T>;
  const int64_t row = row_of_thread();
  const bool has_row = row < args.rows;
  const Share share = share_of_thread<N>(has_row, args.columns);
  const C part = softmax_lse_dot<N>(args, row, share);
  const C dot = reduce_row(part, [](C a, C b) { return a + b; });
  if (has_row) softmax_lse_write_gradient<N>(args, row, share, dot);
}

template <typename T>
const char* launch_softmax_lse(const softmax_lse_args<T>& args, void* stream) {
  constexpr int kWidth = kVectorBytes / sizeof(T);
  const bool wide = args.columns % kWidth == 0 &&
                    args.scores.template is_aligned<kWidth>() &&
                    args.mask.template is_aligned<kWidth>();
  const auto kernel = wide ? softmax_lse_kernel<kWidth, T> : softmax_lse_kernel<1, T>;
  const auto [grid, block] = row_launch(args.rows, args.columns / (wide ? kWidth : 1));
  kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(args);
  return launch_error();
}

template <typename T>
const char* launch_softmax_lse_backward(const softmax_lse_backward_args<T>& args,
                                        void* stream) {
  constexpr int kWidth = kVectorBytes / sizeof(T);
  const bool wide = args.columns % kWidth == 0 &&
                    args.grad_probs.template is_aligned<kWidth>() &&
                    args.probs.template is_aligned<kWidth>();
  const auto kernel =
      wide ? softmax_lse_backward_kernel<kWidth, T> : softmax_lse_backward_kernel<1, T>;
  const auto [grid, block] = row_launch(args.rows, args.columns / (wide ? kWidth : 1));
  kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(args);
  return launch_error();
}

// Compiles a launcher for the types that softmax_lse_op.cpp calls it with.
#define STARTER_INSTANTIATE(launch)                               \
  template decltype(launch<c10::Half>) launch<c10::Half>;         \
  template decltype(launch<c10::BFloat16>) launch<c10::BFloat16>; \
  template decltype(launch<float>) launch<float>;                 \
  template decltype(launch<double>) launch<double>;
STARTER_INSTANTIATE(launch_softmax_lse)
STARTER_INSTANTIATE(launch_softmax_lse_backward)

}  // namespace starter

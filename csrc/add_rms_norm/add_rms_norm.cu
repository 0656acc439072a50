// The GPU launcher, for CUDA and for HIP.
#include "add_rms_norm.h"

namespace opbook {

// [launch]
template <typename scalar_t, typename weight_t>
const char* launch_add_rms_norm(const scalar_t* input, int64_t input_stride,
                                const scalar_t* residual, int64_t residual_stride,
                                const weight_t* weight, scalar_t* output, scalar_t* sum,
                                accumulate_t<scalar_t>* rrms, int64_t rows,
                                int64_t hidden, double eps, void* stream) {
  using acc_t = accumulate_t<scalar_t>;
  constexpr int kWidth = kVectorBytes / sizeof(scalar_t);
  const bool vectorized = hidden % kWidth == 0 && is_vector_aligned(weight) &&
                          rows_are_aligned(input, input_stride, rows) &&
                          rows_are_aligned(residual, residual_stride, rows) &&
                          rows_are_aligned(output, hidden, rows) &&
                          rows_are_aligned(sum, hidden, rows);
  const int64_t vectors = hidden / kWidth;
  const auto launch = [&](auto kernel, dim3 block) {
    kernel<<<grid_of_rows(rows, block), block, 0, static_cast<gpuStream_t>(stream)>>>(
        input, input_stride, residual, residual_stride, weight, output, sum, rrms, rows,
        hidden, acc_t(1) / static_cast<acc_t>(hidden), static_cast<acc_t>(eps),
        what_to_keep(2 * rows * hidden * sizeof(scalar_t)));
    return launch_error();
  };
  if (!vectorized) {
    return launch(add_rms_norm_kernel<scalar_t, weight_t, 0, 1>,
                  block_of_rows(hidden, kShortRowThreads));
  }
  if (vectors > 4 * kMaxThreads) {
    return launch(add_rms_norm_kernel<scalar_t, weight_t, 0, kWidth>, kMaxThreads);
  }
  if (rows <= kFewRows && vectors <= kMaxThreads) {
    return launch(add_rms_norm_kernel<scalar_t, weight_t, 1, kWidth>,
                  threads_for(vectors));
  }
  if (vectors <= 2 * kMinWarpSize) {
    return launch(add_rms_norm_kernel<scalar_t, weight_t, 2, kWidth>,
                  block_of_rows((vectors + 1) / 2, kShortRowThreads));
  }
  return launch(add_rms_norm_kernel<scalar_t, weight_t, 4, kWidth>,
                block_of_rows((vectors + 3) / 4, kShortRowThreads));
}
// [/launch]

#define OPBOOK_INSTANTIATE(scalar_t, weight_t)                                        \
  template const char* launch_add_rms_norm(                                           \
      const scalar_t*, int64_t, const scalar_t*, int64_t, const weight_t*, scalar_t*, \
      scalar_t*, accumulate_t<scalar_t>*, int64_t, int64_t, double, void*)
OPBOOK_FOR_INPUT_AND_WEIGHT(OPBOOK_INSTANTIATE);

}  // namespace opbook

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
  using Added = Residual<scalar_t>;
  const auto launch = [&]<int kWidth, bool kAligned>() {
    const auto [kernel, block] =
        rms_norm_form<scalar_t, weight_t, kWidth, kAligned, Added>(rows, hidden,
                                                                   weight);
    kernel<<<grid_of_rows(rows, block), block, 0, static_cast<gpuStream_t>(stream)>>>(
        input, input_stride, Added{residual, residual_stride, sum}, weight, output,
        hidden, rrms, rows, hidden, acc_t(1) / static_cast<acc_t>(hidden),
        static_cast<acc_t>(eps), what_to_keep(2 * rows * hidden * sizeof(scalar_t)));
    return launch_error();
  };
  return with_width<scalar_t>(hidden,
                              {alignment_of(input, input_stride, rows, hidden),
                               alignment_of(residual, residual_stride, rows, hidden),
                               alignment_of(output, hidden, rows, hidden),
                               alignment_of(sum, hidden, rows, hidden)},
                              weight, launch);
}
// [/launch]

#define OPBOOK_INSTANTIATE(scalar_t, weight_t)                                        \
  template const char* launch_add_rms_norm(                                           \
      const scalar_t*, int64_t, const scalar_t*, int64_t, const weight_t*, scalar_t*, \
      scalar_t*, accumulate_t<scalar_t>*, int64_t, int64_t, double, void*)
OPBOOK_FOR_INPUT_AND_WEIGHT(OPBOOK_INSTANTIATE);

}  // namespace opbook

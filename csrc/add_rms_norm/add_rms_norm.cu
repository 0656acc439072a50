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
  using Added = Residual<scalar_t>;
  const View<const scalar_t> inputs{input, input_stride};
  const View<scalar_t> outputs{output, hidden};
  const Added added{{residual, residual_stride}, {sum, hidden}};
  const Problem<accumulate_t<scalar_t>> problem(rows, hidden, eps);
  // hipify makes ::min of std::min, which takes two numbers.
  const int of_inputs = std::min(alignment_of(input, input_stride, rows, hidden),
                                 alignment_of(residual, residual_stride, rows, hidden));
  const int of_results = std::min(alignment_of(output, hidden, rows, hidden),
                                  alignment_of(sum, hidden, rows, hidden));
  const int alignment = std::min(of_inputs, of_results);
  const auto launch_rows = [&]<bool kAligned>() {
    const Call call =
        call_of<scalar_t, kAligned>(rows, hidden, alignment, weight, true, false);
    const auto [kernel, block] =
        launch_of<scalar_t, weight_t, kAligned, Added>(path_of(call), call);
    kernel<<<grid_of_rows(rows, block), block, 0, static_cast<gpuStream_t>(stream)>>>(
        inputs, added, weight, outputs, rrms, problem);
    return launch_error();
  };
  const bool aligned = alignment == kVectorBytes && is_vector_aligned(weight);
  return aligned ? launch_rows.template operator()<true>()
                 : launch_rows.template operator()<false>();
}
// [/launch]

#define OPBOOK_INSTANTIATE(scalar_t, weight_t)                                        \
  template const char* launch_add_rms_norm(                                           \
      const scalar_t*, int64_t, const scalar_t*, int64_t, const weight_t*, scalar_t*, \
      scalar_t*, accumulate_t<scalar_t>*, int64_t, int64_t, double, void*)
OPBOOK_FOR_INPUT_AND_WEIGHT(OPBOOK_INSTANTIATE);

}  // namespace opbook

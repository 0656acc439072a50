// The GPU launcher, for CUDA and for HIP.
#include "add_rms_norm.h"

#include <algorithm>

namespace opbook {

// [launch]
template <bool kAligned, typename T, typename W>
const char* launch_rows(const rms_norm_args<T, W>& args, const Residual<T>& residual,
                        int alignment, void* stream) {
  const Call call = call_of<kAligned>(args, alignment, true);
  const auto [kernel, block] = launch_of<T, W, kAligned, Residual<T>>(call);
  kernel<<<grid_of_rows(args.rows, block), block, 0,
           static_cast<cudaStream_t>(stream)>>>(args.input, residual, args.weight,
                                                args.output, args.rrms,
                                                Problem<compute_t<T>>(args));
  return launch_error();
}

template <typename T, typename W>
const char* launch_add_rms_norm(const rms_norm_args<T, W>& args,
                                const Residual<T>& residual, void* stream) {
  const auto of = [&](auto rows) { return alignment_of(rows, args.rows, args.hidden); };
  // hipify makes ::min of std::min, which takes two numbers.
  const int alignment = std::min(std::min(of(args.input), of(residual.rows)),
                                 std::min(of(args.output), of(residual.sum)));
  const bool aligned = alignment == kVectorBytes && is_vector_aligned(args.weight);
  return aligned ? launch_rows<true>(args, residual, alignment, stream)
                 : launch_rows<false>(args, residual, alignment, stream);
}
// [/launch]

#define OPBOOK_INSTANTIATE(T, W)                                       \
  template const char* launch_add_rms_norm(const rms_norm_args<T, W>&, \
                                           const Residual<T>&, void*)
OPBOOK_FOR_INPUT_AND_WEIGHT(OPBOOK_INSTANTIATE);

}  // namespace opbook

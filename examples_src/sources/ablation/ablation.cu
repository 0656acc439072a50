// All launchers of RMSNorm for bf16, under names without types, in one file, so that a
// variant is one compilation.
#include "rms_norm/rms_norm.h"
#undef OPBOOK_FOR_INPUT_AND_WEIGHT
#define OPBOOK_FOR_INPUT_AND_WEIGHT(INSTANTIATE) \
  INSTANTIATE(c10::BFloat16, c10::BFloat16)
#include "rms_norm/rms_norm.cu"
#undef OPBOOK_INSTANTIATE
#include "rms_norm/rms_norm_backward.cu"
#undef OPBOOK_INSTANTIATE
#include "add_rms_norm/add_rms_norm.cu"

using T = c10::BFloat16;

namespace opbook {

const char* launch_forward(const T* input, const T* weight, T* output, int64_t rows,
                           int64_t hidden, void* stream) {
  const rms_norm_args<T, T> args{
      {input, hidden}, weight, {output, hidden}, nullptr, rows, hidden, 1e-6f};
  return launch_rms_norm(args, stream);
}

const char* launch_add(const T* input, const T* residual, const T* weight, T* output,
                       T* sum, int64_t rows, int64_t hidden, void* stream) {
  const rms_norm_args<T, T> args{
      {input, hidden}, weight, {output, hidden}, nullptr, rows, hidden, 1e-6f};
  const Residual<T> added{{residual, hidden}, {sum, hidden}};
  return launch_add_rms_norm(args, added, stream);
}

const char* launch_backward(const T* grad, const T* input, const T* weight,
                            const float* rrms, T* grad_input, float* partial,
                            T* grad_weight, int64_t rows, int64_t hidden,
                            void* stream) {
  const rms_norm_backward_args<T, T> args{
      {grad, hidden}, {input, hidden}, weight,      rrms, nullptr,
      grad_input,     partial,         grad_weight, rows, hidden};
  return launch_rms_norm_backward(args, stream);
}

}  // namespace opbook

extern "C" int64_t backward_chunks(int64_t rows, int64_t hidden) {
  return opbook::rms_norm_backward_chunks<T>(rows, hidden);
}

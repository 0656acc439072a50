// The gradients of one row, for profile_few_rows.py, which loads this library often.
#include "../../csrc/rms_norm/rms_norm_backward.h"

extern "C" const char* launch(const void* grad, const void* input, const void* weight,
                              const void* rrms, void* grad_input, void* grad_weight,
                              int hidden, void* stream) {
  using namespace opbook;
  using bf16 = c10::BFloat16;
  constexpr int kWidth = kVectorBytes / sizeof(bf16);
  auto* const total = static_cast<bf16*>(grad_weight);
  // A single chunk is the gradient itself, but a null pointer means that none is
  // wanted.
  auto* const chunk = reinterpret_cast<float*>(grad_weight);
  rms_norm_backward_few_rows_kernel<bf16, bf16, false, kWidth>
      <<<1, threads_for(hidden / kWidth), 0, static_cast<gpuStream_t>(stream)>>>(
          static_cast<const bf16*>(grad), hidden, static_cast<const bf16*>(input),
          hidden, static_cast<const bf16*>(weight), static_cast<const float*>(rrms),
          nullptr, static_cast<bf16*>(grad_input), chunk, total, 1, hidden,
          1.0f / hidden);
  return launch_error();
}

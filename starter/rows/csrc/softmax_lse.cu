// Compiles the GPU kernels for what softmax_lse_op.cpp calls launch_rows with.
#include "softmax_lse.h"

namespace starter {

#define STARTER_INSTANTIATE(T)                                         \
  template const char* launch_rows(const softmax_lse_args<T>&, void*); \
  template const char* launch_rows(const softmax_lse_backward_args<T>&, void*);
STARTER_INSTANTIATE(c10::Half)
STARTER_INSTANTIATE(c10::BFloat16)
STARTER_INSTANTIATE(float)
STARTER_INSTANTIATE(double)

}  // namespace starter

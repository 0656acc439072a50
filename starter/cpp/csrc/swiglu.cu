// Compiles the GPU kernels for what swiglu_op.cpp calls launch_elements with.
#include "swiglu.h"

namespace starter {

#define STARTER_INSTANTIATE(T)                                        \
  template const char* launch_elements(const swiglu_args<T>&, void*); \
  template const char* launch_elements(const swiglu_backward_args<T>&, void*);
STARTER_INSTANTIATE(c10::Half)
STARTER_INSTANTIATE(c10::BFloat16)
STARTER_INSTANTIATE(float)
STARTER_INSTANTIATE(double)

}  // namespace starter

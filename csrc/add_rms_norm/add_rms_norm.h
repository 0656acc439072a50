// sum = input + residual, output = rms_norm(sum), over the last dimension, in one
// kernel, rms_norm's own: the sum is normalized while it is still in registers.
#pragma once

#include "../rms_norm/rms_norm.h"

namespace opbook {

// As launch_rms_norm of the sum. Output and sum are contiguous, and share no memory
// with what is read.
template <typename T, typename W>
const char* launch_add_rms_norm(const rms_norm_args<T, W>& args,
                                const Residual<T>& residual, void* stream);

}  // namespace opbook

// sum = input + residual, output = rms_norm(sum), over the last dimension, in one
// kernel, rms_norm's own: the sum is normalized while it is still in registers.
#pragma once

#include "../rms_norm/rms_norm.h"

namespace opbook {

// As launch_rms_norm of the sum of two matrices. `output` and `sum` are contiguous and
// share no memory with what is read.
template <typename scalar_t, typename weight_t>
const char* launch_add_rms_norm(const scalar_t* input, int64_t input_stride,
                                const scalar_t* residual, int64_t residual_stride,
                                const weight_t* weight, scalar_t* output, scalar_t* sum,
                                accumulate_t<scalar_t>* rrms, int64_t rows,
                                int64_t hidden, double eps, void* stream);

}  // namespace opbook

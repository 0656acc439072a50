// add_one: output = input + 1, element by element. The library's smallest operator.
#pragma once

#include "../portable.h"

namespace opbook {

// In fp32 for fp16 and bf16, then rounded once.
template <typename scalar_t>
OPBOOK_HOST_DEVICE inline scalar_t plus_one(scalar_t value) {
  using acc_t = accumulate_t<scalar_t>;
  return static_cast<scalar_t>(static_cast<acc_t>(value) + acc_t(1));
}

// Adds one to `count` elements of device memory; `output` may be `input`. Returns null,
// or the runtime's words for a launch error.
template <typename scalar_t>
const char* launch_add_one(const scalar_t* input, scalar_t* output, int64_t count,
                           void* stream);

#if defined(OPBOOK_GPU_COMPILER)

// A grid of n threads, of which each takes every n-th element.
template <typename scalar_t>
__global__ void add_one_kernel(const scalar_t* input, scalar_t* output, int64_t count) {
  const int64_t first = threadIdx.x + static_cast<int64_t>(blockDim.x) * blockIdx.x;
  const int64_t step = static_cast<int64_t>(blockDim.x) * gridDim.x;
  for (int64_t i = first; i < count; i += step) output[i] = plus_one(input[i]);
}

#endif  // OPBOOK_GPU_COMPILER

}  // namespace opbook

// CUDA's name for bfloat16 in a HIP file.
#include <hip/hip_runtime.h>

// [kernel]
__global__ void copy_kernel(const __nv_bfloat16* input, __nv_bfloat16* output) {
  output[threadIdx.x] = input[threadIdx.x];
}
// [/kernel]

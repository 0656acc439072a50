// Sums the rows of a bf16 matrix on both kinds of GPU, from one source.
#include "../../../csrc/block_sum.h"

namespace opbook {

// [kernel]
__global__ void __launch_bounds__(kMaxThreads, 1)
    row_sum_kernel(const c10::BFloat16* input, float* output, int64_t columns) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
    sum += static_cast<float>(input[blockIdx.x * columns + i]);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) output[blockIdx.x] = sum;
}

const char* row_sum(const c10::BFloat16* input, float* output, int rows,
                    int64_t columns, cudaStream_t stream) {
  row_sum_kernel<<<rows, 256, 0, stream>>>(input, output, columns);
  return launch_error();
}
// [/kernel]

}  // namespace opbook

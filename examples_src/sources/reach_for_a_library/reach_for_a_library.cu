// The sum of each row, once with a library's reduction and once with our own.
#include <cub/block/block_reduce.cuh>

#include "../../../csrc/block_sum.h"

namespace opbook {

// [rows]
template <int kThreads>
__global__ void __launch_bounds__(kThreads, 1)
    cub_row_sum(const c10::BFloat16* input, float* output, int64_t columns) {
  using BlockReduce = cub::BlockReduce<float, kThreads>;
  __shared__ typename BlockReduce::TempStorage scratch;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    sum += static_cast<float>(input[blockIdx.x * columns + i]);
  }
  sum = BlockReduce(scratch).Sum(sum);  // for thread 0 alone
  if (threadIdx.x == 0) output[blockIdx.x] = sum;
}
template __global__ void cub_row_sum<256>(const c10::BFloat16*, float*, int64_t);

__global__ void __launch_bounds__(256, 1)
    own_row_sum(const c10::BFloat16* input, float* output, int64_t columns) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
    sum += static_cast<float>(input[blockIdx.x * columns + i]);
  }
  sum = block_sum(sum);  // for every thread
  if (threadIdx.x == 0) output[blockIdx.x] = sum;
}
// [/rows]

}  // namespace opbook

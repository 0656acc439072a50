// Sums the rows of a bf16 matrix, written for CUDA alone: what hipify is given.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

// [kernel]
__device__ float warp_sum(float value) {
  for (int lane_mask = 16; lane_mask > 0; lane_mask /= 2) {
    value += __shfl_xor_sync(0xffffffff, value, lane_mask);
  }
  return value;
}

__global__ void __launch_bounds__(1024, 1)
    row_sum_kernel(const __nv_bfloat16* input, float* output, int64_t columns) {
  __shared__ float partial[32];
  float sum = 0;
  for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
    sum += __bfloat162float(input[blockIdx.x * columns + i]);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < blockDim.x / warpSize; ++warp) sum += partial[warp];
  output[blockIdx.x] = sum;
}

const char* row_sum(const __nv_bfloat16* input, float* output, int rows,
                    int64_t columns, cudaStream_t stream) {
  row_sum_kernel<<<rows, 256, 0, stream>>>(input, output, columns);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
// [/kernel]

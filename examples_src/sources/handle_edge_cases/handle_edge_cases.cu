// A launcher that takes grid and stream from its caller, right or wrong, and returns
// what the runtime said.
#include <cstdint>

__global__ void negate_kernel(const float* input, float* output, int64_t count) {
  const int64_t step = static_cast<int64_t>(blockDim.x) * gridDim.x;
  int64_t i = threadIdx.x + static_cast<int64_t>(blockDim.x) * blockIdx.x;
  for (; i < count; i += step) output[i] = -input[i];
}

// [launch]
extern "C" const char* negate(const float* input, float* output, int64_t count,
                              int blocks, int threads, void* stream) {
  negate_kernel<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(
      input, output, count);
  const auto status = cudaGetLastError();
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}
// [/launch]

// Replace each element by the sum of it and its left neighbour, with a fault planted on
// demand. `check_memory FAULT` runs it on the GPU; launch_neighbour_sum is for callers
// that bring their own memory.
#if defined(__HIP__)
#include <hip/hip_runtime.h>
#define gpuGetLastError hipGetLastError
#define gpuGetErrorString hipGetErrorString
using gpuStream_t = hipStream_t;
#else
#include <cuda_runtime.h>
#define gpuGetLastError cudaGetLastError
#define gpuGetErrorString cudaGetErrorString
using gpuStream_t = cudaStream_t;
#endif

// [kernel]
enum Fault { kNone, kOutOfBounds, kRace, kUninitialised };
constexpr int kThreads = 256;

__global__ void neighbour_sum(const float* input, float* output, int size, int fault) {
  __shared__ float tile[kThreads];
  const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
  tile[t] = i < size ? input[i] : 0;
  if (fault != kRace) __syncthreads();
  const float left = t > 0 ? tile[t - 1] : (i > 0 && i < size ? input[i - 1] : 0);
  if (i < size || fault == kOutOfBounds) output[i] = tile[t] + left;
}
// [/kernel]

namespace opbook {
const char* launch_neighbour_sum(const float* input, float* output, int size, int fault,
                                 void* stream) {
  const int blocks = (size + kThreads - 1) / kThreads;
  neighbour_sum<<<blocks, kThreads, 0, static_cast<gpuStream_t>(stream)>>>(
      input, output, size, fault);
  const auto status = gpuGetLastError();
  return status ? gpuGetErrorString(status) : nullptr;
}
}  // namespace opbook

#if !defined(__HIP__)
#include <cstdio>
#include <cstdlib>
#include <vector>

// [main]
extern "C" const char* neighbour_sum_on_gpu(const float* input, float* output, int size,
                                            int fault) {
  return opbook::launch_neighbour_sum(input, output, size, fault, nullptr);
}

int main(int argc, char** argv) {
  const int fault = argc > 1 ? std::atoi(argv[1]) : kNone, size = 1000;
  const std::vector<float> ones(size, 1);
  float *input, *output, last = 0;
  cudaMalloc(&input, size * sizeof(float));
  cudaMalloc(&output, size * sizeof(float));
  if (fault != kUninitialised)
    cudaMemcpy(input, ones.data(), size * sizeof(float), cudaMemcpyHostToDevice);
  neighbour_sum_on_gpu(input, output, size, fault);
  cudaMemcpy(&last, output + size - 1, sizeof(float), cudaMemcpyDeviceToHost);
  std::printf("last element: %g\n", last);
  cudaFree(input);
  cudaFree(output);
}
// [/main]
#endif

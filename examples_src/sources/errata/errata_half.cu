// A dot product that adds up in its storage type, as CUDA and as HIP.
#if defined(__HIP__)
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>
#else
#include <cuda_fp16.h>
#endif

// [kernel]
template <typename T>
__global__ void dot_kernel(const T* left, const T* right, T* output, int count) {
  T sum = 0;
  for (int i = 0; i < count; ++i) sum += left[i] * right[i];
  *output = sum;
}
template __global__ void dot_kernel(const __half*, const __half*, __half*, int);
// [/kernel]

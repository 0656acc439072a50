// RMSNorm and its gradients with plain kernels. nvcc and HIP's clang compile this file,
// and tests/emulated.py runs it on the CPU. All matrices are contiguous.
#include "block_sum.h"

namespace plain {

constexpr int kThreads = 256;

// [forward]
template <typename T>
__global__ void plain_rms_norm(const T* x, const T* weight, T* y, float* rrms,
                               int hidden, float eps) {
  const int64_t start =
      static_cast<int64_t>(blockIdx.x) * hidden;  // of the block's row
  float sum = 0;
  for (int i = threadIdx.x; i < hidden; i += blockDim.x) {
    const float value = x[start + i];
    sum += value * value;
  }
  const float mean = block_sum(sum) / hidden;  // the same in every thread
  const float r = 1 / std::sqrt(mean + eps);
  for (int i = threadIdx.x; i < hidden; i += blockDim.x) {
    y[start + i] = x[start + i] * r * weight[i];
  }
  if (threadIdx.x == 0) rrms[blockIdx.x] = r;
}
// [/forward]

// [input]
template <typename T>
__global__ void plain_input_gradient(const T* grad, const T* x, const T* weight,
                                     const float* rrms, T* grad_x, int hidden) {
  const int64_t start = static_cast<int64_t>(blockIdx.x) * hidden;
  float sum = 0;
  for (int i = threadIdx.x; i < hidden; i += blockDim.x) {
    sum += static_cast<float>(grad[start + i]) * weight[i] * x[start + i];
  }
  const float mean = block_sum(sum) / hidden, r = rrms[blockIdx.x];
  for (int i = threadIdx.x; i < hidden; i += blockDim.x) {
    const float g = static_cast<float>(grad[start + i]) * weight[i];
    grad_x[start + i] = r * (g - x[start + i] * r * r * mean);
  }
}
// [/input]

// [weight]
template <typename T>
__global__ void plain_weight_gradient(const T* grad, const T* x, const float* rrms,
                                      T* grad_weight, int64_t rows, int hidden) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= hidden) return;
  float sum = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t i = row * hidden + column;
    sum += static_cast<float>(grad[i]) * x[i] * rrms[row];
  }
  grad_weight[column] = sum;
}
// [/weight]

// [launch]
template <typename T>
const char* launch_plain_rms_norm(const T* x, const T* weight, T* y, float* rrms,
                                  int64_t rows, int64_t hidden, float eps,
                                  void* stream) {
  plain_rms_norm<T><<<rows, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      x, weight, y, rrms, hidden, eps);
  return launch_error();
}
// [/launch]

template <typename T>
const char* launch_plain_gradients(const T* grad, const T* x, const T* weight,
                                   const float* rrms, T* grad_x, T* grad_weight,
                                   int64_t rows, int64_t hidden, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  plain_input_gradient<T>
      <<<rows, kThreads, 0, on>>>(grad, x, weight, rrms, grad_x, hidden);
  const int64_t columns = blocks_for(hidden, kThreads);
  plain_weight_gradient<T>
      <<<columns, kThreads, 0, on>>>(grad, x, rrms, grad_weight, rows, hidden);
  return launch_error();
}

#define INSTANTIATE(T)                                                                \
  template const char* launch_plain_rms_norm(const T*, const T*, T*, float*, int64_t, \
                                             int64_t, float, void*);                  \
  template const char* launch_plain_gradients(                                        \
      const T*, const T*, const T*, const float*, T*, T*, int64_t, int64_t, void*)
INSTANTIATE(c10::BFloat16);
INSTANTIATE(float);
#undef INSTANTIATE

}  // namespace plain

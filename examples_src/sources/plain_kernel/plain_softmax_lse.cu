// softmax_lse by its plainest kernel: each thread computes a row. nvcc and HIP's clang
// compile this file, and emulated.py runs it on the CPU. All tensors are contiguous.
#include <torch/headeronly/util/BFloat16.h>

#include <cmath>
#include <cstdint>
#include <limits>

#if defined(__HIP__)
#include <hip/hip_runtime.h>
#define cudaStream_t hipStream_t
#define cudaGetLastError hipGetLastError
#define cudaGetErrorString hipGetErrorString
#define cudaSuccess hipSuccess
#endif

namespace plain {

// [kernel]
template <typename T>
__global__ void plain_softmax_lse(const T* scores, const bool* mask, T* probs,
                                  float* lse, int64_t rows, int64_t columns,
                                  float scale) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= rows) return;  // the last block may have more threads than rows are left
  const int64_t begin = row * columns, end = begin + columns;
  const auto score = [=](int64_t i) {
    constexpr float kMasked = -std::numeric_limits<float>::infinity();
    return mask == nullptr || mask[i] ? static_cast<float>(scores[i]) * scale : kMasked;
  };

  constexpr float kMost = std::numeric_limits<float>::max();
  float largest = -kMost, sum = 0;
  for (int64_t i = begin; i < end; ++i) {
    if (score(i) > largest) largest = score(i);
  }
  if (largest > kMost) largest = kMost;  // stays finite, as inf - inf is NaN
  for (int64_t i = begin; i < end; ++i) sum += std::exp(score(i) - largest);
  // Of a masked row, the sum is 0. If it is infinite, all probabilities are NaN.
  const float factor = sum == 0 ? 0 : (1 + (sum - sum)) / sum;
  for (int64_t i = begin; i < end; ++i) {
    probs[i] = static_cast<T>(std::exp(score(i) - largest) * factor);
  }
  lse[row] = largest + std::log(sum);
}
// [/kernel]

// [launch]
template <typename T>
const char* launch_plain_softmax_lse(const T* scores, const bool* mask, T* probs,
                                     float* lse, int64_t rows, int64_t columns,
                                     float scale, void* stream) {
  constexpr int kThreads = 128;
  const int64_t blocks = (rows + kThreads - 1) / kThreads;
  plain_softmax_lse<T><<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      scores, mask, probs, lse, rows, columns, scale);
  const auto status = cudaGetLastError();
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}
// [/launch]

#define INSTANTIATE(T)                                                             \
  template const char* launch_plain_softmax_lse(const T*, const bool*, T*, float*, \
                                                int64_t, int64_t, float, void*)
INSTANTIATE(c10::BFloat16);
INSTANTIATE(float);
#undef INSTANTIATE

}  // namespace plain

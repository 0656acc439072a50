// output[i] = Function()(input[i]) for neighbouring elements; the two may be one
// tensor.
#pragma once

#include <algorithm>
#include <utility>

#include "vectors.h"

namespace opbook {

// On a CPU, for the elements from `begin` to `end`.
template <typename Function, typename T>
void compute_range(const T* input, T* output, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) output[i] = Function()(input[i]);
}

#if defined(OPBOOK_GPU)

// [kernel] a thread takes vectors of kWidth elements, then single ones of the tail
template <typename Function, typename T, int kWidth = kVectorBytes / sizeof(T)>
__global__ void __launch_bounds__(kMaxThreads)
    elementwise_kernel(const T* input, T* output, int64_t vectors, int64_t count) {
  using Elements = Vector<T, kWidth>;

  const int64_t first = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  const int64_t threads = gridDim.x * static_cast<int64_t>(blockDim.x);
  for (int64_t i = first; i < vectors; i += threads) {
    Elements elements = reinterpret_cast<const Elements*>(input)[i];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) elements.data[j] = Function()(elements.data[j]);
    reinterpret_cast<Elements*>(output)[i] = elements;
  }
  for (int64_t i = vectors * kWidth + first; i < count; i += threads) {
    output[i] = Function()(input[i]);
  }
}
// [/kernel]

// The vectors and the blocks of a launch: no vectors if one tensor is not aligned.
constexpr int kElementwiseThreads = 256;
template <typename T>
std::pair<int64_t, int64_t> vectors_and_blocks(const T* input, const T* output,
                                               int64_t count) {
  constexpr int kWidth = kVectorBytes / sizeof(T);
  const bool aligned = is_vector_aligned(input) && is_vector_aligned(output);
  const int64_t vectors = aligned ? count / kWidth : 0;
  const int64_t steps = std::max(vectors, count - vectors * kWidth);
  return {vectors, blocks_for(steps, kElementwiseThreads)};
}

#endif  // OPBOOK_GPU

}  // namespace opbook

// neg: output = -input, element by element, in place of ATen's kernel.
#pragma once

#include <type_traits>

#include "../vectors.h"

namespace opbook {

// [math]
// Integers come as unsigned ones of their width. The bits of the result are the same,
// and the smallest integer, which has no negative, wraps as in eager; signed, it would
// be an overflow, which C++ leaves undefined.
template <typename T>
OPBOOK_HOST_DEVICE inline T negative(T value) {
  if constexpr (std::is_integral_v<T>) {
    static_assert(std::is_unsigned_v<T>);
    return static_cast<T>(0 - value);
  } else if constexpr (sizeof(T) == 2) {
    value.x ^= 0x8000;  // fp16 and bf16: the sign is the highest bit
    return value;
  } else {
    return -value;
  }
}
// [/math]

// Negates `count` elements of device memory. Returns null, or the runtime's words for a
// launch error.
template <typename T>
const char* launch_neg(const T* input, T* output, int64_t count, void* stream);

#if defined(OPBOOK_GPU)

// [kernel] a thread takes vectors of kWidth elements, then single ones of the tail
template <typename T, int kWidth>
__global__ void __launch_bounds__(kMaxThreads)
    neg_kernel(const T* input, T* output, int64_t vectors, int64_t count) {
  using Elements = Vector<T, kWidth>;

  const int64_t first = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  const int64_t threads = gridDim.x * static_cast<int64_t>(blockDim.x);
  for (int64_t i = first; i < vectors; i += threads) {
    Elements elements = reinterpret_cast<const Elements*>(input)[i];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) elements.data[j] = negative(elements.data[j]);
    reinterpret_cast<Elements*>(output)[i] = elements;
  }
  for (int64_t i = vectors * kWidth + first; i < count; i += threads) {
    output[i] = negative(input[i]);
  }
}
// [/kernel]

#endif  // OPBOOK_GPU

}  // namespace opbook

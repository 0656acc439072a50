// The GPU launcher of neg: raw pointers and a stream, no PyTorch.
#include <algorithm>

#include "neg.h"

namespace opbook {

// [launch]
template <typename T>
const char* launch_neg(const T* input, T* output, int64_t count, void* stream) {
  constexpr int kThreads = 256;
  constexpr int kWidth = kVectorBytes / sizeof(T);
  if (count == 0) return nullptr;  // a grid of no blocks cannot be launched
  const bool aligned = is_vector_aligned(input) && is_vector_aligned(output);
  const int64_t vectors = aligned ? count / kWidth : 0;
  const int64_t steps = std::max(vectors, count - vectors * kWidth);
  neg_kernel<T, kWidth>
      <<<blocks_for(steps, kThreads), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
          input, output, vectors, count);
  return launch_error();
}
// [/launch]

#define OPBOOK_INSTANTIATE(T) \
  template const char* launch_neg(const T*, T*, int64_t, void*)
OPBOOK_INSTANTIATE(uint8_t);
OPBOOK_INSTANTIATE(uint16_t);
OPBOOK_INSTANTIATE(uint32_t);
OPBOOK_INSTANTIATE(uint64_t);
OPBOOK_INSTANTIATE(c10::Half);
OPBOOK_INSTANTIATE(c10::BFloat16);
OPBOOK_INSTANTIATE(float);
OPBOOK_INSTANTIATE(double);
#undef OPBOOK_INSTANTIATE

}  // namespace opbook

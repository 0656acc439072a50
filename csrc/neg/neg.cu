// The GPU launcher of neg: raw pointers and a stream, no PyTorch.
#include "neg.h"

namespace opbook {

// [launch]
template <typename T>
const char* launch_neg(const T* input, T* output, int64_t count, void* stream) {
  if (count == 0) return nullptr;  // a grid of no blocks cannot be launched
  const auto [vectors, blocks] = vectors_and_blocks(input, output, count);
  elementwise_kernel<Negative, T>
      <<<blocks, kElementwiseThreads, 0, static_cast<cudaStream_t>(stream)>>>(
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

}  // namespace opbook

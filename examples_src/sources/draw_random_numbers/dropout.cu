// The GPU launcher of dropout: raw pointers and a stream, no PyTorch.
#include "dropout.h"

namespace opbook {

template <typename T>
const char* launch_dropout(const T* input, T* output, int64_t count, Rate rate,
                           const int64_t* state, void* stream) {
  constexpr int kThreads = 256;
  const bool aligned = is_vector_aligned(input) && is_vector_aligned(output);
  const auto kernel = aligned ? dropout_kernel<true, T> : dropout_kernel<false, T>;
  const int64_t blocks = blocks_for((count + kWords - 1) / kWords, kThreads);
  kernel<<<blocks, kThreads, 0, static_cast<gpuStream_t>(stream)>>>(input, output,
                                                                    count, rate, state);
  return launch_error();
}

#define OPBOOK_INSTANTIATE(T)                                                      \
  template const char* launch_dropout(const T*, T*, int64_t, Rate, const int64_t*, \
                                      void*)
OPBOOK_INSTANTIATE(c10::Half);
OPBOOK_INSTANTIATE(c10::BFloat16);
OPBOOK_INSTANTIATE(float);
OPBOOK_INSTANTIATE(double);
#undef OPBOOK_INSTANTIATE

}  // namespace opbook

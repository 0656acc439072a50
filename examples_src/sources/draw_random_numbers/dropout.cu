// The GPU launcher of dropout: raw pointers and a stream, no PyTorch.
#include "dropout.h"

namespace draw {

template <typename T>
const char* launch_dropout(const T* input, T* output, int64_t count, Rate rate,
                           const int64_t* state, void* stream) {
  constexpr int kThreads = 256;
  const auto is_aligned = [](const T* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % sizeof(Vector<T, kWords>) == 0;
  };
  const bool aligned = is_aligned(input) && is_aligned(output);
  const auto kernel = aligned ? dropout_kernel<true, T> : dropout_kernel<false, T>;
  const int64_t blocks = blocks_for(count, kWords * kThreads);
  kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      input, output, count, rate, state);
  return launch_error();
}

#define INSTANTIATE(T)                                                             \
  template const char* launch_dropout(const T*, T*, int64_t, Rate, const int64_t*, \
                                      void*)
INSTANTIATE(c10::Half);
INSTANTIATE(c10::BFloat16);
INSTANTIATE(float);
INSTANTIATE(double);
#undef INSTANTIATE

}  // namespace draw

// The GPU launcher of the epilogue. nvcc compiles this file for CUDA, HIP's clang for
// ROCm. The matrix product is ATen's; linear_gelu_op.cpp asks for it.
#include <algorithm>

#include "linear_gelu.h"

namespace opbook {

namespace {

constexpr int kThreads = 256;

}  // namespace

template <typename T>
const char* launch_linear_gelu(const T* input, T* output, int64_t numel, bool tanh_form,
                               void* stream) {
  constexpr int kWidth = kVectorBytes / sizeof(T);
  const bool aligned = is_vector_aligned(input) && is_vector_aligned(output);
  const int64_t vectors = aligned ? numel / kWidth : 0;
  const int64_t steps = std::max(vectors, numel - vectors * kWidth);
  const auto kernel = tanh_form ? gelu_kernel<T, Gelu::kTanh, kWidth>
                                : gelu_kernel<T, Gelu::kErf, kWidth>;
  kernel<<<blocks_for(steps, kThreads), kThreads, 0,
           static_cast<cudaStream_t>(stream)>>>(input, output, vectors, numel);
  return launch_error();
}

#define OPBOOK_INSTANTIATE(T) \
  template const char* launch_linear_gelu(const T*, T*, int64_t, bool, void*)
OPBOOK_INSTANTIATE(c10::Half);
OPBOOK_INSTANTIATE(c10::BFloat16);
OPBOOK_INSTANTIATE(float);
OPBOOK_INSTANTIATE(double);
#undef OPBOOK_INSTANTIATE

}  // namespace opbook

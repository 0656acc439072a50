// The GPU launcher of the epilogue. nvcc compiles this file for CUDA, HIP's clang for
// ROCm. The matrix product is ATen's; linear_gelu_op.cpp asks for it.
#include "linear_gelu.h"

namespace opbook {

template <typename T>
const char* launch_linear_gelu(const T* input, T* output, int64_t numel, bool tanh_form,
                               void* stream) {
  const auto [vectors, blocks] = vectors_and_blocks(input, output, numel);
  const auto kernel = tanh_form ? elementwise_kernel<Gelu<GeluForm::kTanh>, T>
                                : elementwise_kernel<Gelu<GeluForm::kErf>, T>;
  kernel<<<blocks, kElementwiseThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      input, output, vectors, numel);
  return launch_error();
}

#define OPBOOK_INSTANTIATE(T) \
  template const char* launch_linear_gelu(const T*, T*, int64_t, bool, void*)
OPBOOK_INSTANTIATE(c10::Half);
OPBOOK_INSTANTIATE(c10::BFloat16);
OPBOOK_INSTANTIATE(float);
OPBOOK_INSTANTIATE(double);

}  // namespace opbook

// shim::square for PyTorch, and for the code of AOTInductor, which calls it in C.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;

Tensor square(const Tensor& x) {
  STD_TORCH_CHECK(x.scalar_type() == torch::headeronly::ScalarType::Float,
                  "shim::square: expected x in fp32");
  const Tensor input = torch::stable::contiguous(x);
  Tensor y = torch::stable::new_empty(input, input.sizes());
  const float* from = static_cast<const float*>(input.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0; i < input.numel(); ++i) to[i] = from[i] * from[i];
  return y;
}

STABLE_TORCH_LIBRARY(shim, m) { m.def("square(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(shim, CPU, m) { m.impl("square", TORCH_BOX(&square)); }

// [shim]
// The name of the device and of the operator; the arguments, then where results go.
extern "C" AOTI_TORCH_EXPORT AOTITorchError
aoti_torch_cpu_square(AtenTensorHandle x, AtenTensorHandle* result) {
  try {
    AtenTensorHandle mine;  // the caller keeps x, and a Tensor deletes what it holds
    TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(x, &mine));
    const Tensor y = square(Tensor(mine));
    return aoti_torch_new_tensor_handle(y.get(), result);
  } catch (...) {  // no exception of C++ may leave a function of C
    return AOTI_TORCH_FAILURE;
  }
}
// [/shim]

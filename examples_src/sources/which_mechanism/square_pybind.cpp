#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/utils/pybind.h>

#include "square.h"

// [function] Python sees a function, and PyTorch sees nothing
at::Tensor square(const at::Tensor& input) {
  TORCH_CHECK(
      input.scalar_type() == at::kFloat && input.is_contiguous() && input.is_cpu(),
      "square: expected a contiguous float32 tensor on the CPU");
  at::Tensor output = at::empty_like(input);
  square_values(input.const_data_ptr<float>(), output.mutable_data_ptr<float>(),
                input.numel());
  return output;
}

PYBIND11_MODULE(square_pybind, m) { m.def("square", &square); }
// [/function]

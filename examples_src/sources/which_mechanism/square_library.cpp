#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "square.h"

// [operator] the same, with PyTorch's own tensor class
at::Tensor square(const at::Tensor& input) {
  TORCH_CHECK(input.scalar_type() == at::kFloat && input.is_contiguous(),
              "square: expected a contiguous float32 tensor");
  at::Tensor output = at::empty_like(input);
  square_values(input.const_data_ptr<float>(), output.mutable_data_ptr<float>(),
                input.numel());
  return output;
}

// One operator for each body that the page gives to the mechanisms in Python.
TORCH_LIBRARY(mechanism_library, m) {
  m.def("bare(Tensor input) -> Tensor");
  m.def("ruled(Tensor input) -> Tensor");
  m.def("stopping(Tensor input) -> Tensor");
  m.def("foreign(Tensor input) -> Tensor");
}

TORCH_LIBRARY_IMPL(mechanism_library, CPU, m) {
  for (const char* name : {"bare", "ruled", "stopping", "foreign"})
    m.impl(name, &square);
}

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "square.h"

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// [operator] it allocates its result, and PyTorch knows its schema
Tensor square(const Tensor& input) {
  STD_TORCH_CHECK(input.scalar_type() == ScalarType::Float && input.is_contiguous(),
                  "square: expected a contiguous float32 tensor");
  Tensor output = torch::stable::empty_like(input);
  square_values(static_cast<const float*>(input.const_data_ptr()),
                static_cast<float*>(output.mutable_data_ptr()), input.numel());
  return output;
}

// One operator for each body that the page gives to the mechanisms in Python.
STABLE_TORCH_LIBRARY(mechanism_stable, m) {
  m.def("bare(Tensor input) -> Tensor");
  m.def("ruled(Tensor input) -> Tensor");
  m.def("stopping(Tensor input) -> Tensor");
  m.def("foreign(Tensor input) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(mechanism_stable, CPU, m) {
  for (const char* name : {"bare", "ruled", "stopping", "foreign"})
    m.impl(name, TORCH_BOX(&square));
}

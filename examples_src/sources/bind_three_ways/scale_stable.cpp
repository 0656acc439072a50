#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "scale.h"

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// [binding] the stable ABI: a schema, and a kernel for the CPU
Tensor scale(const Tensor& input, double factor) {
  STD_TORCH_CHECK(input.scalar_type() == ScalarType::Float && input.is_contiguous(),
                  "scale: expected a contiguous float32 tensor");
  Tensor output = torch::stable::new_empty(input, input.sizes());
  scale_values(static_cast<const float*>(input.const_data_ptr()),
               static_cast<float*>(output.mutable_data_ptr()), input.numel(),
               static_cast<float>(factor));
  return output;
}

STABLE_TORCH_LIBRARY(scale_stable, m) {
  m.def("scale(Tensor input, float factor) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(scale_stable, CPU, m) { m.impl("scale", TORCH_BOX(&scale)); }

// aten::neg for the backend: a kernel needs the stable ABI and nothing else of PyTorch.
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/Dispatch_v2.h>

#include "bring_a_backend.h"

namespace backend {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// [neg]
// Both tensors have the same sizes and the same order of elements in memory.
template <typename scalar_t>
void negate(const scalar_t* input, scalar_t* output, int64_t count) {
  for (int64_t i = 0; i < count; ++i) output[i] = -input[i];
}

Tensor neg(const Tensor& self) {
  STD_TORCH_CHECK(self.scalar_type() != ScalarType::Bool,
                  "Negation, the `-` operator, on a bool tensor is not supported. If "
                  "you are trying to invert a mask, use the `~` or `logical_not()` "
                  "operator instead.");
  note("aten::neg in a kernel of this backend");
  const torch::stable::accelerator::DeviceGuard guard(self.get_device_index());
  Tensor output = torch::stable::empty_like(self);
  const bool same_layout = self.strides().equals(output.strides());
  const Tensor input = same_layout ? self : torch::stable::copy_(output, self);
  THO_DISPATCH_V2(self.scalar_type(), "aten::neg", AT_WRAP([&] {
                    launch([input, output] {
                      negate(static_cast<const scalar_t*>(input.const_data_ptr()),
                             static_cast<scalar_t*>(output.mutable_data_ptr()),
                             output.numel());
                    });
                  }),
                  AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), ScalarType::ComplexHalf,
                  ScalarType::Half, ScalarType::BFloat16);
  return output;
}

STABLE_TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("neg", TORCH_BOX(&neg)); }
// [/neg]

}  // namespace backend

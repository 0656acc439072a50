"""Read an input whose elements do not lie side by side.

The kernel is right for a tensor that was just made, and wrong for a slice or a
transposed tensor. Mend `twice`. The stable ABI has `torch::stable::contiguous`.
"""

HEAD = r"""
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;
"""

# [gap]
KERNEL = r"""
Tensor twice(const Tensor& x) {
  STD_TORCH_CHECK(x.scalar_type() == torch::headeronly::ScalarType::Float,
                  "twice: expected x in fp32");
  const Tensor y = torch::stable::new_empty(x, x.sizes());
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = 2 * from[i];
  return y;
}
"""
# [/gap]

REGISTRATION = r"""
STABLE_TORCH_LIBRARY(strides, m) { m.def("twice(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(strides, CPU, m) { m.impl("twice", TORCH_BOX(&twice)); }
"""

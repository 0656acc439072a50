"""Find the numbers that a sum forgets.

The kernel adds four numbers at a time, into four sums that do not wait for each other.
A test with rows of 4, 64 and 4096 passes. Mend `row_sum`, and read no memory after the
row.
"""

HEAD = r"""
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;
"""

# [gap]
KERNEL = r"""
float row_sum(const float* x, int64_t count) {
  float sums[4] = {0, 0, 0, 0};
  for (int64_t i = 0; i + 4 <= count; i += 4) {
    for (int k = 0; k < 4; ++k) sums[k] += x[i + k];
  }
  return sums[0] + sums[1] + sums[2] + sums[3];
}
"""
# [/gap]

REGISTRATION = r"""
Tensor sum(const Tensor& x) {
  STD_TORCH_CHECK(x.dim() == 1 && x.is_contiguous() &&
                  x.scalar_type() == torch::headeronly::ScalarType::Float,
                  "sum: expected x to be contiguous, in one dimension and in fp32");
  const Tensor result = torch::stable::new_empty(x, {1});
  const float* from = static_cast<const float*>(x.data_ptr());
  *static_cast<float*>(result.data_ptr()) = row_sum(from, x.numel());
  return result;
}

STABLE_TORCH_LIBRARY(tail, m) { m.def("sum(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(tail, CPU, m) { m.impl("sum", TORCH_BOX(&sum)); }
"""

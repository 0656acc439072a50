// An override of aten::neg whose kernel calls aten::neg.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <array>

using torch::stable::Tensor;

// [kernel]
Tensor neg(const Tensor& input) {
  std::array<StableIValue, 1> stack{torch::stable::detail::from(input)};
  torch_call_dispatcher("aten::neg", "", stack.data(), TORCH_ABI_VERSION);
  return torch::stable::detail::to<Tensor>(stack[0]);
}

STABLE_TORCH_LIBRARY_IMPL(aten, CPU, m) { m.impl("neg", TORCH_BOX(&neg)); }
// [/kernel]

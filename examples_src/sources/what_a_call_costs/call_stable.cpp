#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

// [operator] the stable ABI: the same kernels, boxed
namespace {

using torch::stable::Tensor;

Tensor make(const Tensor& input) { return torch::stable::empty_like(input); }

void nothing(const Tensor& input) {}

}  // namespace

STABLE_TORCH_LIBRARY(call_stable, m) {
  m.def("make(Tensor input) -> Tensor");
  m.def("registered(Tensor input) -> Tensor");
  m.def("nothing(Tensor input) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(call_stable, CPU, m) {
  m.impl("make", TORCH_BOX(&make));
  m.impl("registered", TORCH_BOX(&make));
  m.impl("nothing", TORCH_BOX(&nothing));
}
// [/operator]

// The macros of the stable ABI, and a registration that leads nowhere.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

namespace {

using torch::stable::Tensor;

Tensor copy(const Tensor& x) { return torch::stable::clone(x); }

}  // namespace

// [macros]
// Opens the namespace. Once per namespace, in the whole process.
STABLE_TORCH_LIBRARY(macros, m) { m.def("copy(Tensor x) -> Tensor"); }

// Adds to a namespace, opened or not. As often as you like.
STABLE_TORCH_LIBRARY_FRAGMENT(macros, m) { m.def("same(Tensor x) -> Tensor"); }

// Kernels for one dispatch key. As often as you like, each kernel once.
STABLE_TORCH_LIBRARY_IMPL(macros, CPU, m) {
  m.impl("copy", TORCH_BOX(&copy));
  m.impl("same", TORCH_BOX(&copy));
}
// [/macros]

// [orphan]
// A kernel for a schema that nobody has defined: a slip in the name.
STABLE_TORCH_LIBRARY_IMPL(macros, CPU, m) { m.impl("kopy", TORCH_BOX(&copy)); }
// [/orphan]

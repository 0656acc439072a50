// Ported: the stable ABI, in the same namespace.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

torch::stable::Tensor copy(torch::stable::Tensor x) { return torch::stable::clone(x); }

REGISTER(halfway, m) { m.def("copy(Tensor x) -> Tensor"); }

STABLE_TORCH_LIBRARY_IMPL(halfway, CPU, m) { m.impl("copy", TORCH_BOX(&copy)); }

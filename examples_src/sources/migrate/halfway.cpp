// Not yet ported: ATen, and a library of its own.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

TORCH_LIBRARY(halfway, m) { m.def("flip(Tensor x) -> Tensor"); }

TORCH_LIBRARY_IMPL(halfway, CPU, m) {
  m.impl("flip", [](const at::Tensor& x) { return x.flip({0}); });
}

// A library that claims a namespace for itself.
#include <torch/csrc/stable/library.h>

// [library]
STABLE_TORCH_LIBRARY(errata_shared, m) { m.def("twice(Tensor x) -> Tensor"); }
// [/library]

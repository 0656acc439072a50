// A library that claims a namespace with the macro of ATen's C++ interface.
#include <torch/library.h>

// [claim]
TORCH_LIBRARY(claimed, m) { m.def("matmul(Tensor left, Tensor right) -> Tensor"); }
// [/claim]

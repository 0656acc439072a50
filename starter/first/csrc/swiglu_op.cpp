// starter::swiglu computes SiLU(gate) * up, for contiguous fp32 tensors on the CPU.
#include <Python.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cmath>

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// [check]
void check(const Tensor& tensor) {
  STD_TORCH_CHECK(tensor.scalar_type() == ScalarType::Float && tensor.is_contiguous(),
                  "starter::swiglu: expected contiguous fp32 tensors, but got dtype ",
                  tensor.scalar_type(),
                  tensor.is_contiguous() ? "" : ", not contiguous");
}
// [/check]

// [operator]
Tensor swiglu(const Tensor& gate, const Tensor& up) {
  check(gate);
  check(up);
  STD_TORCH_CHECK(gate.sizes().equals(up.sizes()),
                  "starter::swiglu: expected gate and up of the same shape");
  const Tensor output = torch::stable::new_empty(gate, gate.sizes());
  const float* g = gate.const_data_ptr<float>();
  const float* u = up.const_data_ptr<float>();
  float* y = output.mutable_data_ptr<float>();
  for (int64_t i = 0; i < gate.numel(); ++i) {
    y[i] = g[i] / (1 + std::exp(-g[i])) * u[i];
  }
  return output;
}
// [/operator]

// [register]
STABLE_TORCH_LIBRARY(starter, m) { m.def("swiglu(Tensor gate, Tensor up) -> Tensor"); }

STABLE_TORCH_LIBRARY_IMPL(starter, CPU, m) { m.impl("swiglu", TORCH_BOX(&swiglu)); }
// [/register]

// An empty Python module: importing it loads this library, which registers the
// operator.
PyMODINIT_FUNC PyInit__C(void) {
  static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, nullptr};
  return PyModule_Create(&module);
}

// One operator for each kind of argument: it gives back what it got.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <string>
#include <vector>

using torch::headeronly::Layout;
using torch::headeronly::MemoryFormat;
using torch::headeronly::ScalarType;
using torch::stable::Device;
using torch::stable::Tensor;

template <typename T>
T same(T value) {
  return value;
}

// [types]
STABLE_TORCH_LIBRARY(stable_types, m) {
  m.def("tensor(Tensor x) -> Tensor");
  m.def("optional_tensor(Tensor? x) -> Tensor?");
  m.def("tensors(Tensor[] x) -> Tensor[]");
  m.def("integer(int x) -> int");
  m.def("symbolic(SymInt x) -> SymInt");
  m.def("real(float x) -> float");
  m.def("optional_real(float? x) -> float?");
  m.def("flag(bool x) -> bool");
  m.def("text(str x) -> str");
  m.def("integers(int[] x) -> int[]");
  m.def("dtype(ScalarType x) -> ScalarType");
  m.def("device(Device x) -> Device");
  m.def("layout(Layout x) -> Layout");
  m.def("memory_format(MemoryFormat x) -> MemoryFormat");
  m.def("scalar(Scalar x) -> Scalar");
}

STABLE_TORCH_LIBRARY_IMPL(stable_types, CompositeExplicitAutograd, m) {
  m.impl("tensor", TORCH_BOX(&same<Tensor>));
  m.impl("optional_tensor", TORCH_BOX(&same<std::optional<Tensor>>));
  m.impl("tensors", TORCH_BOX(&same<std::vector<Tensor>>));
  m.impl("integer", TORCH_BOX(&same<int64_t>));
  m.impl("symbolic", TORCH_BOX(&same<int64_t>));
  m.impl("real", TORCH_BOX(&same<double>));
  m.impl("optional_real", TORCH_BOX(&same<std::optional<double>>));
  m.impl("flag", TORCH_BOX(&same<bool>));
  m.impl("text", TORCH_BOX(&same<std::string>));
  m.impl("integers", TORCH_BOX(&same<std::vector<int64_t>>));
  m.impl("dtype", TORCH_BOX(&same<ScalarType>));
  m.impl("device", TORCH_BOX(&same<Device>));
  m.impl("layout", TORCH_BOX(&same<Layout>));
  m.impl("memory_format", TORCH_BOX(&same<MemoryFormat>));
  m.impl("scalar", TORCH_BOX(&same<double>));
}
// [/types]

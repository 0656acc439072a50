// One operator for each type of a schema, with the C++ type that its kernel takes.
// Every kernel returns its argument, so a call shows what has arrived.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <string>
#include <vector>

namespace {

using torch::headeronly::Layout;
using torch::headeronly::MemoryFormat;
using torch::headeronly::ScalarType;
using torch::stable::Device;
using torch::stable::Tensor;

template <typename T>
T echo(T value) {
  return value;
}

// [echo]
#define ECHO(name, schema_type, ...)                                      \
  STABLE_TORCH_LIBRARY_FRAGMENT(schema_types, m) {                        \
    m.def(#name "(" schema_type " value) -> " schema_type);               \
  }                                                                       \
  STABLE_TORCH_LIBRARY_IMPL(schema_types, CompositeExplicitAutograd, m) { \
    m.impl(#name, TORCH_BOX(&echo<__VA_ARGS__>));                         \
  }

ECHO(tensor, "Tensor", Tensor)
ECHO(maybe_tensor, "Tensor?", std::optional<Tensor>)
ECHO(tensors, "Tensor[]", std::vector<Tensor>)
ECHO(whole, "int", int64_t)
ECHO(symbolic, "SymInt", int64_t)
ECHO(real, "float", double)
ECHO(truth, "bool", bool)
ECHO(text, "str", std::string)
ECHO(dtype, "ScalarType", ScalarType)
ECHO(layout, "Layout", Layout)
ECHO(device, "Device", Device)
ECHO(memory_format, "MemoryFormat", MemoryFormat)
ECHO(wholes, "int[]", std::vector<int64_t>)
ECHO(pair, "int[2]", std::vector<int64_t>)
ECHO(maybe_real, "float?", std::optional<double>)
ECHO(scalar, "Scalar", double)
// [/echo]

// [narrow]
int64_t narrow_int(int value) { return value; }
double narrow_float(float value) { return value; }

STABLE_TORCH_LIBRARY_FRAGMENT(schema_types, m) {
  m.def("narrow_int(int value) -> int");
  m.def("narrow_float(float value) -> float");
}

STABLE_TORCH_LIBRARY_IMPL(schema_types, CompositeExplicitAutograd, m) {
  m.impl("narrow_int", TORCH_BOX(&narrow_int));
  m.impl("narrow_float", TORCH_BOX(&narrow_float));
}
// [/narrow]

}  // namespace

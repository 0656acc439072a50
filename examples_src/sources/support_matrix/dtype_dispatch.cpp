// From a dtype that is known at run time to a C++ type, in three ways.
#include <torch/headeronly/core/Dispatch_v2.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <cstdio>
#include <exception>
#include <string>

#if defined(WITH_ATEN)
#include <ATen/Dispatch.h>
#endif

using torch::headeronly::ScalarType;

// [headeronly]
// torch/headeronly: no library to link. AT_FLOATING_TYPES is float and double.
size_t by_headeronly(ScalarType dtype) {
  return THO_DISPATCH_V2(dtype, "by_headeronly",
                         AT_WRAP([&]() -> size_t { return sizeof(scalar_t); }),
                         AT_FLOATING_TYPES, ScalarType::Half, ScalarType::BFloat16);
}
// [/headeronly]

// [switch]
// A switch of your own: every case in sight, and the message is yours.
size_t by_switch(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Half:
      return sizeof(c10::Half);
    case ScalarType::BFloat16:
      return sizeof(c10::BFloat16);
    case ScalarType::Float:
      return sizeof(float);
    case ScalarType::Double:
      return sizeof(double);
    default:
      STD_TORCH_CHECK(false, "by_switch: expected fp16, bf16, fp32 or fp64, but got ",
                      dtype);
  }
}
// [/switch]

#if defined(WITH_ATEN)
// [aten]
// ATen: what most extensions show. It ties the library to one version of PyTorch.
size_t by_aten(ScalarType dtype) {
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "by_aten",
                                         [&] { return sizeof(scalar_t); });
}
// [/aten]
#endif

template <typename Function>
void show(const char* name, Function function) {
  for (const auto dtype : {ScalarType::Half, ScalarType::Double, ScalarType::Int}) {
    try {
      std::printf("%-14s %-7s %zu bytes\n", name, torch::headeronly::toString(dtype),
                  function(dtype));
    } catch (const std::exception& error) {
      const std::string text = error.what();
      std::printf("%-14s %-7s %s\n", name, torch::headeronly::toString(dtype),
                  text.substr(0, text.find('\n')).c_str());
    }
  }
}

int main() {
  show("by_headeronly", by_headeronly);
  show("by_switch", by_switch);
#if defined(WITH_ATEN)
  show("by_aten", by_aten);
#endif
}

// Kernels that replace ATen's at one dispatch key, which the build names. Only the loop
// in `compute` is for the CPU: a backend puts its launch there.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

namespace {

bool is_set(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  return value != nullptr && std::string(value) == "1";
}

// [operators]
struct Neg {
  static constexpr const char* kName = "neg";
  static float of(float x) { return -x; }
};

struct Silu {
  static constexpr const char* kName = "silu";
  static float of(float x) { return x / (1 + std::exp(-x)); }
};

struct Mish {
  static constexpr const char* kName = "mish";
  static float of(float x) { return x * std::tanh(std::log1p(std::exp(x))); }
};
// [/operators]

// [override]
// The overload `out` has a row of its own, which still holds ATen's kernel.
template <typename Op>
Tensor by_aten(const Tensor& input) {
  using torch::stable::detail::from;
  const Tensor output = torch::stable::new_empty(input, {0});
  std::array<StableIValue, 2> stack{from(input), from(output)};
  const std::string name = std::string("aten::") + Op::kName;
  TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher(name.c_str(), "out", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

template <typename Op>
Tensor compute(const Tensor& input) {
  Tensor output = torch::stable::empty_like(input);
  const float* from = static_cast<const float*>(input.const_data_ptr());
  float* to = static_cast<float*>(output.mutable_data_ptr());
  for (int64_t i = 0; i < input.numel(); ++i) to[i] = Op::of(from[i]);
  return output;
}

template <typename Op>
Tensor override_of(const Tensor& input) {
  const bool ours = input.scalar_type() == ScalarType::Float && input.is_contiguous();
  static const bool log = is_set("SELFBUILT_LOG");
  if (log)
    std::fprintf(stderr, "selfbuilt: %s%s\n", Op::kName, ours ? "" : ", by ATen");
  return ours ? compute<Op>(input) : by_aten<Op>(input);
}
// [/override]

// [registry]
template <typename... Ops>
void replace(auto& library) {
  const auto replace_one = [&]<typename Op>() {
    if (is_set(std::string("SELFBUILT_DISABLE_") + Op::kName)) return;
    library.impl(Op::kName, TORCH_BOX(&override_of<Op>));
  };
  (replace_one.template operator()<Ops>(), ...);
}

STABLE_TORCH_LIBRARY_IMPL(aten, SELFBUILT_KEY, library) {
  replace<Neg, Silu, Mish>(library);
}
// [/registry]

}  // namespace

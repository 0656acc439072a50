// opbook::linear_gelu for PyTorch: schema, checks, the matrix product through ATen, and
// the epilogue on CPU and GPU. Everything here uses the LibTorch Stable ABI.
#include <array>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "../tensors.h"
#include "linear_gelu.h"

#if defined(USE_CUDA) && !defined(USE_ROCM)
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.h>
#endif

namespace opbook {

namespace {

constexpr const char* kName = "opbook::linear_gelu";

void check_argument(const char* name, const Tensor& tensor, const Tensor& input) {
  check_device(kName, name, tensor, input);
  OPBOOK_CHECK(tensor.scalar_type() == input.scalar_type(), kName, "expected ", name,
               " of input's dtype, ", input.scalar_type(), ", but got ",
               tensor.scalar_type());
}

void check(const Tensor& input, const Tensor& weight,
           const std::optional<Tensor>& bias) {
  check_floating(kName, input);
  check_not_scalar(kName, input);
  OPBOOK_CHECK(weight.dim() == 2 && weight.size(1) == input.size(-1), kName,
               "expected weight of shape [out_features, ", input.size(-1),
               "], as input is ", shape_of(input), ", but got ", shape_of(weight));
  check_argument("weight", weight, input);
  if (!bias) return;
  OPBOOK_CHECK(bias->dim() == 1 && bias->size(0) == weight.size(0), kName,
               "expected bias of shape [", weight.size(0), "], as weight is ",
               shape_of(weight), ", but got ", shape_of(*bias));
  check_argument("bias", *bias, input);
}

// [linear]
// The matrix product is ATen's: `aten::linear` by name, through the dispatcher.
Tensor linear(const Tensor& input, const Tensor& weight,
              const std::optional<Tensor>& bias) {
  using torch::stable::detail::from;
  const Tensor product = from_aten(kName, "aten::linear", input, [&] {
    std::array<StableIValue, 3> stack{from(input), from(weight), from(bias)};
    call_aten("aten::linear", "", stack.data());
    return torch::stable::detail::to<Tensor>(stack[0]);
  });
  return contiguous(kName, product);
}
// [/linear]

#if defined(USE_CUDA) && !defined(USE_ROCM)
// [fused]
// cuBLASLt's epilogue computes the tanh form, and no other. It works on the fp32 sums
// of the matrix product, so the pre-activation is neither rounded nor written. ATen
// reaches it through _addmm_activation, and computes the same form where cuBLASLt has
// no kernel; but where there is nothing to add up (K = 0) it forgets the activation.
bool fuses(const Tensor& input, const Tensor& weight) {
  const auto dtype = input.scalar_type();
  return input.numel() > 0 && weight.numel() > 0 &&
         (dtype == ScalarType::Half || dtype == ScalarType::BFloat16);
}

Tensor fused_linear_gelu(const Tensor& input, const Tensor& weight,
                         const std::optional<Tensor>& bias) {
  return from_aten(kName, "aten::_addmm_activation", input, [&] {
    const Tensor rows = torch::stable::reshape(input, {-1, input.size(-1)});
    const Tensor columns = torch::stable::transpose(weight, 0, 1);
    const Tensor added =
        bias ? *bias : torch::stable::new_zeros(weight, {weight.size(0)});
    AtenTensorHandle result = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_cuda__addmm_activation(
        added.get(), rows.get(), columns.get(), /*beta=*/1, /*alpha=*/1, /*use_gelu=*/1,
        &result));
    const auto sizes = input.sizes();
    std::vector<int64_t> shape(sizes.begin(), sizes.end());
    shape.back() = weight.size(0);
    return torch::stable::reshape(Tensor(result), shape);
  });
}
// [/fused]
#endif

struct Cpu {
  explicit Cpu(const Tensor&) {}

  template <typename T>
  void gelu(const T* input, T* output, int64_t count, bool tanh_form) const {
    constexpr int64_t kElementsPerTask = 4096;  // about 30 us of exp or erfc
    const auto elements = tanh_form ? compute_range<Gelu<GeluForm::kTanh>, T>
                                    : compute_range<Gelu<GeluForm::kErf>, T>;
    torch::stable::parallel_for(
        0, count, kElementsPerTask,
        [&](int64_t begin, int64_t end) { elements(input, output, begin, end); });
  }
};

#if defined(USE_CUDA)
struct Gpu : GpuOf {
  using GpuOf::GpuOf;

  template <typename... Args>
  void gelu(Args... args) const {
    check_launch(kName, launch_linear_gelu(args..., stream));
  }
};
#endif

// [dispatch]
// Writes GELU of `input` to `output`, both contiguous; they may be one tensor.
template <typename Device>
void apply(const Device& device, const Tensor& input, const Tensor& output,
           bool tanh_form) {
  if (output.numel() == 0) return;
  with_type_of(kName, input, [&](auto zero) {
    using T = decltype(zero);
    device.gelu(data_of<const T>(input), data_of<T>(output), output.numel(), tanh_form);
  });
}
// [/dispatch]

// The schema has a bool where the interface has a string, because the stable ABI's
// conversion leaks a copy of each string argument.
template <typename Device>
Tensor linear_gelu(const Tensor& input, const Tensor& weight,
                   const std::optional<Tensor>& bias, bool tanh_form) {
  check(input, weight, bias);
  const Device device(input);
#if defined(USE_CUDA) && !defined(USE_ROCM)
  if (std::is_same_v<Device, Gpu> && tanh_form && fuses(input, weight)) {
    return fused_linear_gelu(input, weight, bias);
  }
#endif
  const Tensor output = linear(input, weight, bias);
  apply(device, output, output, tanh_form);
  return output;
}

// Training: the gradient of GELU is a function of what GELU was applied to.
template <typename Device>
std::tuple<Tensor, Tensor> linear_gelu_for_backward(const Tensor& input,
                                                    const Tensor& weight,
                                                    const std::optional<Tensor>& bias,
                                                    bool tanh_form) {
  check(input, weight, bias);
  const Device device(input);
  const Tensor preactivation = linear(input, weight, bias);
  const Tensor output = empty_like(kName, preactivation);
  apply(device, preactivation, output, tanh_form);
  return {output, preactivation};
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(opbook, m) {
  m.def(
      "linear_gelu(Tensor input, Tensor weight, Tensor? bias=None, "
      "bool tanh_form=False) -> Tensor");
  m.def(
      "linear_gelu_for_backward(Tensor input, Tensor weight, Tensor? bias=None, "
      "bool tanh_form=False) -> (Tensor output, Tensor preactivation)");
}

STABLE_TORCH_LIBRARY_IMPL(opbook, CPU, m) {
  m.impl("linear_gelu", TORCH_BOX(&linear_gelu<Cpu>));
  m.impl("linear_gelu_for_backward", TORCH_BOX(&linear_gelu_for_backward<Cpu>));
}

#if defined(USE_CUDA)
STABLE_TORCH_LIBRARY_IMPL(opbook, CUDA, m) {
  m.impl("linear_gelu", TORCH_BOX(&linear_gelu<Gpu>));
  m.impl("linear_gelu_for_backward", TORCH_BOX(&linear_gelu_for_backward<Gpu>));
}
#endif

}  // namespace opbook

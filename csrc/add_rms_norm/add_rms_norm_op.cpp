// opbook::add_rms_norm for PyTorch: schema, checks, the CPU kernel, and the call into
// the GPU launcher. Its gradient is a call of opbook::rms_norm_backward, from Python.
#include <limits>
#include <optional>

#include "../rms_norm/rows.h"
#include "../tensors.h"
#include "add_rms_norm.h"

namespace opbook {

namespace {

constexpr auto kName = "opbook::add_rms_norm";

void check(const Tensor& input, const Tensor& residual,
           const std::optional<Tensor>& weight) {
  check_input(kName, input, weight);
  check_like_input(kName, "residual", residual, input);
}

// [devices]
struct Cpu {
  explicit Cpu(const Tensor&) {}

  template <typename scalar_t, typename weight_t>
  void add_and_normalize(const scalar_t* input, int64_t input_stride,
                         const scalar_t* residual, int64_t residual_stride,
                         const weight_t* weight, scalar_t* output, scalar_t* sum,
                         accumulate_t<scalar_t>* rrms, int64_t rows, int64_t hidden,
                         double eps) const {
    for_each_row(rows, hidden, [&](int64_t row) {
      const scalar_t* x = input + row * input_stride;
      const scalar_t* r = residual + row * residual_stride;
      scalar_t* s = sum + row * hidden;
      for (int64_t i = 0; i < hidden; ++i) s[i] = rounded_sum(x[i], r[i]);
      const auto scale = rms_norm_row(s, weight, output + row * hidden, hidden,
                                      static_cast<accumulate_t<scalar_t>>(eps));
      if (rrms != nullptr) rrms[row] = scale;
    });
  }
};

#if defined(USE_CUDA)
struct Gpu : GpuOf {
  using GpuOf::GpuOf;

  template <typename... Args>
  void add_and_normalize(Args... args) const {
    check_launch(kName, launch_add_rms_norm(args..., stream));
  }
};
#endif
// [/devices]

// Output and sum; `rrms` receives the reciprocal RMS of each row, unless it is null.
template <typename Device>
std::tuple<Tensor, Tensor> add_and_normalize(const Device& device, const Tensor& input,
                                             const Tensor& residual,
                                             const std::optional<Tensor>& weight,
                                             std::optional<double> eps,
                                             const Tensor* rrms) {
  const Tensor output = new_empty(kName, input, input.sizes());
  const Tensor sum = new_empty(kName, input, input.sizes());
  const Rows inputs = rows_of(kName, input), residuals = rows_of(kName, residual);
  const int64_t hidden = input.size(-1);
  THO_DISPATCH_V2(
      input.scalar_type(), kName, AT_WRAP([&] {
        using acc_t = accumulate_t<scalar_t>;
        if (input.numel() == 0) return;
        with_weight<scalar_t>(kName, weight, input, [&](const auto* weight_data) {
          device.add_and_normalize(
              data_of<scalar_t>(inputs.tensor), inputs.stride,
              data_of<scalar_t>(residuals.tensor), residuals.stride, weight_data,
              mutable_data_of<scalar_t>(output), mutable_data_of<scalar_t>(sum),
              rrms ? mutable_data_of<acc_t>(*rrms) : nullptr, input.numel() / hidden,
              hidden, eps.value_or(std::numeric_limits<acc_t>::epsilon()));
        });
      }),
      AT_FLOATING_TYPES, ScalarType::Half, ScalarType::BFloat16);
  return {output, sum};
}

template <typename Device>
std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& input, const Tensor& residual,
                                        const std::optional<Tensor>& weight,
                                        std::optional<double> eps) {
  check(input, residual, weight);
  return add_and_normalize(Device(input), input, residual, weight, eps, nullptr);
}

// For training: also returns the reciprocal RMS of each row of the sum.
template <typename Device>
std::tuple<Tensor, Tensor, Tensor> add_rms_norm_forward(
    const Tensor& input, const Tensor& residual, const std::optional<Tensor>& weight,
    std::optional<double> eps) {
  check(input, residual, weight);
  const Device device(input);
  const Tensor rrms = new_rrms(kName, input);
  const auto [output, sum] =
      add_and_normalize(device, input, residual, weight, eps, &rrms);
  return {output, sum, rrms};
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(opbook, m) {
  m.def(
      "add_rms_norm(Tensor input, Tensor residual, Tensor? weight=None, "
      "float? eps=None) -> (Tensor output, Tensor sum)");
  m.def(
      "add_rms_norm_forward(Tensor input, Tensor residual, Tensor? weight=None, "
      "float? eps=None) -> (Tensor output, Tensor sum, Tensor rrms)");
}

STABLE_TORCH_LIBRARY_IMPL(opbook, CPU, m) {
  m.impl("add_rms_norm", TORCH_BOX(&add_rms_norm<Cpu>));
  m.impl("add_rms_norm_forward", TORCH_BOX(&add_rms_norm_forward<Cpu>));
}

#if defined(USE_CUDA)
STABLE_TORCH_LIBRARY_IMPL(opbook, CUDA, m) {
  m.impl("add_rms_norm", TORCH_BOX(&add_rms_norm<Gpu>));
  m.impl("add_rms_norm_forward", TORCH_BOX(&add_rms_norm_forward<Gpu>));
}
#endif

}  // namespace opbook

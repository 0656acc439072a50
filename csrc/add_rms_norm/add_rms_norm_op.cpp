// opbook::add_rms_norm for PyTorch: schema, checks, the CPU kernel, and the call into
// the GPU launcher. Its gradient is a call of opbook::rms_norm_backward, from Python.
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
  check_like(kName, "residual", residual, input);
}

// [devices]
struct Cpu {
  explicit Cpu(const Tensor&) {}

  template <typename T, typename W>
  void operator()(const rms_norm_args<T, W>& args, const Residual<T>& residual) const {
    for_each_row(args.rows, args.hidden, [&](int64_t row) {
      const T *x = args.input.row(row), *r = residual.rows.row(row);
      T* sum = residual.sum.row(row);
      for (int64_t i = 0; i < args.hidden; ++i) sum[i] = rounded_sum(x[i], r[i]);
      const auto scale =
          rms_norm_row(sum, args.weight, args.output.row(row), args.hidden, args.eps);
      if (args.rrms != nullptr) args.rrms[row] = scale;
    });
  }
};

#if defined(USE_CUDA)
struct Gpu : GpuOf {
  using GpuOf::GpuOf;

  template <typename T, typename W>
  void operator()(const rms_norm_args<T, W>& args, const Residual<T>& residual) const {
    check_launch(kName, launch_add_rms_norm(args, residual, stream));
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
  const Tensor inputs = viewable(kName, input), residuals = viewable(kName, residual);
  with_args_of(kName, inputs, weight, eps, output, rrms,
               [&]<typename T, typename W>(const rms_norm_args<T, W>& args) {
                 device(args,
                        Residual<T>{view_of<const T>(residuals), view_of<T>(sum)});
               });
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

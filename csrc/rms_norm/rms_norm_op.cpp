// opbook::rms_norm for PyTorch: schema, checks, the CPU kernels, and the call into the
// GPU launcher. Everything here uses the LibTorch Stable ABI.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "rows.h"

#include "../tensors.h"
#include "rms_norm_backward.h"

namespace opbook {

namespace {

constexpr auto kName = "opbook::rms_norm";
constexpr auto kInPlace = "opbook::rms_norm_";
constexpr auto kBackward = "opbook::rms_norm_backward";

struct Cpu {
  explicit Cpu(const Tensor&) {}

  template <typename scalar_t, typename weight_t>
  void normalize(const scalar_t* input, int64_t input_stride, const weight_t* weight,
                 scalar_t* output, int64_t output_stride, accumulate_t<scalar_t>* rrms,
                 int64_t rows, int64_t hidden, double eps) const {
    for_each_row(rows, hidden, [&](int64_t row) {
      const auto scale =
          rms_norm_row(input + row * input_stride, weight, output + row * output_stride,
                       hidden, static_cast<accumulate_t<scalar_t>>(eps));
      if (rrms != nullptr) rrms[row] = scale;
    });
  }

  template <typename scalar_t, typename weight_t>
  void input_gradient(const scalar_t* grad, int64_t grad_stride, const scalar_t* input,
                      int64_t input_stride, const weight_t* weight,
                      const accumulate_t<scalar_t>* rrms, const scalar_t* added,
                      scalar_t* grad_input, int64_t rows, int64_t hidden) const {
    using acc_t = accumulate_t<scalar_t>;
    for_each_row(rows, hidden, [&](int64_t row) {
      const scalar_t* dy = grad + row * grad_stride;
      const scalar_t* x = input + row * input_stride;
      const auto weighted = [&](int64_t i) {
        const acc_t value = static_cast<acc_t>(dy[i]);
        return weight == nullptr ? value : value * static_cast<acc_t>(weight[i]);
      };
      const acc_t product = sum_in_strands<acc_t>(
          hidden, [&](int64_t i) { return weighted(i) * static_cast<acc_t>(x[i]); });
      const acc_t mean_product = product / static_cast<acc_t>(hidden);
      for (int64_t i = 0; i < hidden; ++i) {
        acc_t result = opbook::input_gradient(weighted(i), static_cast<acc_t>(x[i]),
                                              rrms[row], mean_product);
        if (added != nullptr) result += static_cast<acc_t>(added[row * hidden + i]);
        grad_input[row * hidden + i] = static_cast<scalar_t>(result);
      }
    });
  }

  template <typename scalar_t>
  void sum_products(const scalar_t* grad, int64_t grad_stride, const scalar_t* input,
                    int64_t input_stride, const accumulate_t<scalar_t>* rrms,
                    accumulate_t<scalar_t>* partial, int64_t rows,
                    int64_t hidden) const {
    using acc_t = accumulate_t<scalar_t>;
    const int64_t count = chunks<scalar_t>(rows, hidden);
    torch::stable::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        acc_t* sums = partial + chunk * hidden;
        std::fill(sums, sums + hidden, acc_t(0));
        const int64_t last = first_row(chunk + 1, count, rows);
        for (int64_t row = first_row(chunk, count, rows); row < last; ++row) {
          const scalar_t* dy = grad + row * grad_stride;
          const scalar_t* x = input + row * input_stride;
          for (int64_t i = 0; i < hidden; ++i) {
            sums[i] += static_cast<acc_t>(dy[i]) * static_cast<acc_t>(x[i]) * rrms[row];
          }
        }
      }
    });
  }

  // The order of the additions depends on the number of rows, not of threads.
  template <typename scalar_t>
  int64_t chunks(int64_t rows, int64_t /* hidden */) const {
    return std::min<int64_t>(rows, 128);
  }

  template <typename scalar_t, typename weight_t>
  void backward(const scalar_t* grad, int64_t grad_stride, const scalar_t* input,
                int64_t input_stride, const weight_t* weight,
                const accumulate_t<scalar_t>* rrms, const scalar_t* added,
                scalar_t* grad_input, accumulate_t<scalar_t>* partial,
                weight_t* grad_weight, int64_t rows, int64_t hidden) const {
    if (grad_input != nullptr) {
      input_gradient(grad, grad_stride, input, input_stride, weight, rrms, added,
                     grad_input, rows, hidden);
    }
    if (grad_weight == nullptr) return;
    sum_products(grad, grad_stride, input, input_stride, rrms, partial, rows, hidden);
    const int64_t count = chunks<scalar_t>(rows, hidden);
    for (int64_t i = 0; i < hidden; ++i) {
      for (int64_t chunk = 1; chunk < count; ++chunk) {
        partial[i] += partial[chunk * hidden + i];
      }
      grad_weight[i] = static_cast<weight_t>(partial[i]);
    }
  }
};

#if defined(USE_CUDA)
struct Gpu : GpuOf {
  using GpuOf::GpuOf;

  template <typename... Args>
  void normalize(Args... args) const {
    check_launch(kName, launch_rms_norm(args..., stream));
  }

  template <typename scalar_t>
  int64_t chunks(int64_t rows, int64_t hidden) const {
    return rms_norm_backward_chunks<scalar_t>(rows, hidden);
  }

  template <typename... Args>
  void backward(Args... args) const {
    check_launch(kBackward, launch_rms_norm_backward(args..., stream));
  }
};
#endif

// Hands the tensors to `device` as typed pointers. `rrms` may be null.
template <typename Device>
void normalize(const char* op, const Device& device, const Rows& input,
               const std::optional<Tensor>& weight, std::optional<double> eps,
               const Rows& output, const Tensor* rrms) {
  const int64_t hidden = input.tensor.size(-1);
  THO_DISPATCH_V2(
      input.tensor.scalar_type(), kName, AT_WRAP([&] {
        using acc_t = accumulate_t<scalar_t>;
        if (input.tensor.numel() == 0) return;
        with_weight<scalar_t>(op, weight, input.tensor, [&](const auto* weight_data) {
          device.normalize(
              data_of<scalar_t>(input.tensor), input.stride, weight_data,
              mutable_data_of<scalar_t>(output.tensor), output.stride,
              rrms ? mutable_data_of<acc_t>(*rrms) : nullptr,
              input.tensor.numel() / hidden, hidden,
              // Eager's default too: the machine epsilon of the type sums run in.
              eps.value_or(std::numeric_limits<acc_t>::epsilon()));
        });
      }),
      AT_FLOATING_TYPES, ScalarType::Half, ScalarType::BFloat16);
}

template <typename Device>
Tensor rms_norm(const Tensor& input, const std::optional<Tensor>& weight,
                std::optional<double> eps) {
  check_input(kName, input, weight);
  const Device device(input);
  const Tensor output = new_empty(kName, input, input.sizes());
  normalize(kName, device, rows_of(kName, input), weight, eps, {output, input.size(-1)},
            nullptr);
  return output;
}

// [forward]
// For training: also returns the reciprocal RMS of each row, which backward needs.
template <typename Device>
std::tuple<Tensor, Tensor> rms_norm_forward(const Tensor& input,
                                            const std::optional<Tensor>& weight,
                                            std::optional<double> eps) {
  check_input(kName, input, weight);
  const Device device(input);
  const Tensor output = new_empty(kName, input, input.sizes());
  const Tensor rrms = new_rrms(kName, input);
  normalize(kName, device, rows_of(kName, input), weight, eps, {output, input.size(-1)},
            &rrms);
  return {output, rrms};
}
// [/forward]

void check_backward(const Tensor& grad, const Tensor& input,
                    const std::optional<Tensor>& weight, const Tensor& rrms,
                    const std::optional<Tensor>& added) {
  check_input(kBackward, input, weight);
  check_like_input(kBackward, "grad", grad, input);
  if (added) check_like_input(kBackward, "added", *added, input);
  const auto sizes = input.sizes();
  OPBOOK_CHECK(
      rrms.sizes().equals({sizes.data(), sizes.size() - 1}) &&
          rrms.scalar_type() == accumulate_dtype(input) && rrms.is_contiguous(),
      kBackward, "expected rrms as rms_norm_forward returned it for input of shape ",
      shape_of(input), ", but got shape ", shape_of(rrms), " and ", rrms.scalar_type());
  check_same_device(kBackward, "rrms", rrms, input);
}

// Gradients of input and weight; one that is not needed is an empty tensor. `added` is
// added to the gradient of input before it is rounded.
template <typename Device>
std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& grad, const Tensor& input,
                                             const std::optional<Tensor>& weight,
                                             const Tensor& rrms, bool need_input,
                                             bool need_weight,
                                             const std::optional<Tensor>& added) {
  check_backward(grad, input, weight, rrms, added);
  need_weight = need_weight && weight.has_value();
  const Device device(input);
  const Rows grads = rows_of(kBackward, grad), inputs = rows_of(kBackward, input);
  const auto addend = added ? std::optional(contiguous(kBackward, *added)) : added;
  const int64_t hidden = input.size(-1);
  const int64_t rows = rrms.numel();
  const auto acc_dtype = accumulate_dtype(input);
  // The kernels write the weight's gradient in the type that they read the weight in.
  const auto weight_dtype = weight && weight->scalar_type() == input.scalar_type()
                                ? input.scalar_type()
                                : acc_dtype;
  const std::array<int64_t, 1> none{0}, columns{hidden};
  const Tensor grad_input =
      new_empty(kBackward, input, need_input ? input.sizes() : Sizes(none));
  const Tensor grad_weight =
      rows == 0 && need_weight
          ? new_zeros(kBackward, input, columns, weight_dtype)
          : new_empty(kBackward, input, need_weight ? columns : none, weight_dtype);

  const auto scratch = [&](int64_t chunks) {
    const std::array<int64_t, 2> sizes{chunks, hidden};
    return new_empty(kBackward, input, sizes, acc_dtype);
  };

  THO_DISPATCH_V2(
      input.scalar_type(), kBackward, AT_WRAP([&] {
        using acc_t = accumulate_t<scalar_t>;
        if (input.numel() == 0 || !(need_input || need_weight)) return;
        const Tensor partial =
            scratch(need_weight ? device.template chunks<scalar_t>(rows, hidden) : 0);
        with_weight<scalar_t>(kBackward, weight, input, [&](auto* weight_data) {
          using weight_t =
              std::remove_const_t<std::remove_pointer_t<decltype(weight_data)>>;
          device.backward(
              data_of<scalar_t>(grads.tensor), grads.stride,
              data_of<scalar_t>(inputs.tensor), inputs.stride, weight_data,
              data_of<acc_t>(rrms), addend ? data_of<scalar_t>(*addend) : nullptr,
              need_input ? mutable_data_of<scalar_t>(grad_input) : nullptr,
              mutable_data_of<acc_t>(partial),
              need_weight ? mutable_data_of<weight_t>(grad_weight) : nullptr, rows,
              hidden);
        });
      }),
      AT_FLOATING_TYPES, ScalarType::Half, ScalarType::BFloat16);
  if (!need_weight) return {grad_input, grad_weight};
  if (weight->scalar_type() == weight_dtype) return {grad_input, grad_weight};
  return {grad_input, to(kBackward, grad_weight, weight->scalar_type())};
}

// [in_place]
bool has_internal_overlap(const Tensor& tensor) {
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) > 1 && tensor.stride(d) == 0) return true;
  }
  return false;
}

// First and one-past-last byte that a tensor reaches.
std::pair<uintptr_t, uintptr_t> extent_of(const Tensor& tensor) {
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    last += (tensor.size(d) - 1) * tensor.stride(d);
  }
  const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  return {begin, begin + (last + 1) * tensor.element_size()};
}

// A weight inside the input would change while rows are still being scaled by it.
void check_writable(const Tensor& input, const std::optional<Tensor>& weight) {
  if (input.numel() == 0) return;
  OPBOOK_CHECK(!has_internal_overlap(input), kInPlace,
               "several elements of input, of shape ", shape_of(input),
               ", are the same memory, as in an expanded tensor; clone() it first");
  if (!weight) return;
  const auto [input_begin, input_end] = extent_of(input);
  const auto [weight_begin, weight_end] = extent_of(*weight);
  OPBOOK_CHECK(input_end <= weight_begin || weight_end <= input_begin, kInPlace,
               "weight lies between the first element of input and the last, which "
               "are written to; clone() it first");
}

template <typename Device>
void rms_norm_in_place(const Tensor& input, const std::optional<Tensor>& weight,
                       std::optional<double> eps) {
  check_input(kInPlace, input, weight);
  check_writable(input, weight);
  const Device device(input);
  const Rows rows = rows_of(kInPlace, input);
  normalize(kInPlace, device, rows, weight, eps, rows, nullptr);
  if (rows.tensor.data_ptr() == input.data_ptr()) return;
  copy_(kInPlace, input, rows.tensor);  // no single stride describes its rows
}
// [/in_place]

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(opbook, m) {
  m.def("rms_norm(Tensor input, Tensor? weight=None, float? eps=None) -> Tensor");
  m.def(
      "rms_norm_forward(Tensor input, Tensor? weight=None, float? eps=None) "
      "-> (Tensor output, Tensor rrms)");
  m.def(
      "rms_norm_backward(Tensor grad, Tensor input, Tensor? weight, Tensor rrms, "
      "bool need_input, bool need_weight, Tensor? added=None) "
      "-> (Tensor grad_input, Tensor grad_weight)");
  m.def("rms_norm_(Tensor(a!) input, Tensor? weight=None, float? eps=None) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(opbook, CPU, m) {
  m.impl("rms_norm", TORCH_BOX(&rms_norm<Cpu>));
  m.impl("rms_norm_forward", TORCH_BOX(&rms_norm_forward<Cpu>));
  m.impl("rms_norm_backward", TORCH_BOX(&rms_norm_backward<Cpu>));
  m.impl("rms_norm_", TORCH_BOX(&rms_norm_in_place<Cpu>));
}

#if defined(USE_CUDA)
STABLE_TORCH_LIBRARY_IMPL(opbook, CUDA, m) {
  m.impl("rms_norm", TORCH_BOX(&rms_norm<Gpu>));
  m.impl("rms_norm_forward", TORCH_BOX(&rms_norm_forward<Gpu>));
  m.impl("rms_norm_backward", TORCH_BOX(&rms_norm_backward<Gpu>));
  m.impl("rms_norm_", TORCH_BOX(&rms_norm_in_place<Gpu>));
}
#endif

}  // namespace opbook

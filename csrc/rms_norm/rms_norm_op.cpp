// opbook::rms_norm for PyTorch: schema, checks, the CPU kernels, and the call into the
// GPU launcher. Everything here uses the LibTorch Stable ABI.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "../tensors.h"
#include "rms_norm_backward.h"
#include "rows.h"

namespace opbook {

namespace {

constexpr auto kName = "opbook::rms_norm";
constexpr auto kInPlace = "opbook::rms_norm_";
constexpr auto kBackward = "opbook::rms_norm_backward";

struct Cpu {
  explicit Cpu(const Tensor&) {}

  template <typename T, typename W>
  void normalize(const rms_norm_args<T, W>& args) const {
    for_each_row(args.rows, args.hidden, [&](int64_t row) {
      const auto scale = rms_norm_row(args.input.row(row), args.weight,
                                      args.output.row(row), args.hidden, args.eps);
      if (args.rrms != nullptr) args.rrms[row] = scale;
    });
  }

  // The order of the additions depends on the number of rows, not of threads.
  template <typename T>
  int64_t chunks(int64_t rows, int64_t /* hidden */) const {
    return std::min<int64_t>(rows, 128);
  }

  template <typename T, typename W>
  void backward(const rms_norm_backward_args<T, W>& args) const {
    if (args.grad_input != nullptr) compute_grad_input(args);
    if (args.grad_weight == nullptr) return;
    const int64_t count = chunks<T>(args.rows, args.hidden);
    sum_chunks_of_rows(args, count);
    for (int64_t i = 0; i < args.hidden; ++i) {
      for (int64_t chunk = 1; chunk < count; ++chunk) {
        args.partial[i] += args.partial[chunk * args.hidden + i];
      }
      args.grad_weight[i] = static_cast<W>(args.partial[i]);
    }
  }

 private:
  template <typename T, typename W>
  static void compute_grad_input(const rms_norm_backward_args<T, W>& args) {
    using C = compute_t<T>;
    const int64_t hidden = args.hidden;
    for_each_row(args.rows, hidden, [&](int64_t row) {
      const T *dy = args.grad.row(row), *x = args.input.row(row);
      const auto weighted = [&](int64_t i) {
        const C value = static_cast<C>(dy[i]);
        return args.weight == nullptr ? value : value * static_cast<C>(args.weight[i]);
      };
      const C product = sum_in_strands<C>(
          hidden, [&](int64_t i) { return weighted(i) * static_cast<C>(x[i]); });
      const C mean_product = product / static_cast<C>(hidden);
      for (int64_t i = 0; i < hidden; ++i) {
        const int64_t at = row * hidden + i;
        C result = input_gradient(weighted(i), static_cast<C>(x[i]), args.rrms[row],
                                  mean_product);
        if (args.added != nullptr) result += static_cast<C>(args.added[at]);
        args.grad_input[at] = static_cast<T>(result);
      }
    });
  }

  // The weight's gradient, summed over the rows of each chunk.
  template <typename T, typename W>
  static void sum_chunks_of_rows(const rms_norm_backward_args<T, W>& args,
                                 int64_t count) {
    using C = compute_t<T>;
    torch::stable::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        C* sums = args.partial + chunk * args.hidden;
        std::fill(sums, sums + args.hidden, C(0));
        const int64_t last = first_row(chunk + 1, count, args.rows);
        for (int64_t row = first_row(chunk, count, args.rows); row < last; ++row) {
          const T *dy = args.grad.row(row), *x = args.input.row(row);
          const C scale = args.rrms[row];
          for (int64_t i = 0; i < args.hidden; ++i) {
            sums[i] += static_cast<C>(dy[i]) * static_cast<C>(x[i]) * scale;
          }
        }
      }
    });
  }
};

#if defined(USE_CUDA)
struct Gpu : GpuOf {
  using GpuOf::GpuOf;

  template <typename T, typename W>
  void normalize(const rms_norm_args<T, W>& args) const {
    check_launch(kName, launch_rms_norm(args, stream));
  }

  template <typename T>
  int64_t chunks(int64_t rows, int64_t hidden) const {
    return rms_norm_backward_chunks<T>(rows, hidden);
  }

  template <typename T, typename W>
  void backward(const rms_norm_backward_args<T, W>& args) const {
    check_launch(kBackward, launch_rms_norm_backward(args, stream));
  }
};
#endif

template <typename Device>
void normalize(const char* op, const Device& device, const Tensor& input,
               const std::optional<Tensor>& weight, std::optional<double> eps,
               const Tensor& output, const Tensor* rrms) {
  with_args_of(op, input, weight, eps, output, rrms,
               [&](const auto& args) { device.normalize(args); });
}

template <typename Device>
Tensor rms_norm(const Tensor& input, const std::optional<Tensor>& weight,
                std::optional<double> eps) {
  check_input(kName, input, weight);
  const Device device(input);
  const Tensor output = new_empty(kName, input, input.sizes());
  normalize(kName, device, viewable(kName, input), weight, eps, output, nullptr);
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
  normalize(kName, device, viewable(kName, input), weight, eps, output, &rrms);
  return {output, rrms};
}
// [/forward]

void check_backward(const Tensor& grad, const Tensor& input,
                    const std::optional<Tensor>& weight, const Tensor& rrms,
                    const std::optional<Tensor>& added) {
  check_input(kBackward, input, weight);
  check_like(kBackward, "grad", grad, input);
  if (added) check_like(kBackward, "added", *added, input);
  const auto sizes = input.sizes();
  OPBOOK_CHECK(
      rrms.sizes().equals({sizes.data(), sizes.size() - 1}) &&
          rrms.scalar_type() == compute_dtype(input) && rrms.is_contiguous(),
      kBackward, "expected rrms as rms_norm_forward returned it for input of shape ",
      shape_of(input), ", but got shape ", shape_of(rrms), " and ", rrms.scalar_type());
  check_device(kBackward, "rrms", rrms, input);
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
  const Tensor grads = viewable(kBackward, grad), inputs = viewable(kBackward, input);
  const auto addend = added ? std::optional(contiguous(kBackward, *added)) : added;
  const int64_t hidden = input.size(-1);
  const int64_t rows = rrms.numel();
  const auto dtype = compute_dtype(input);
  // The kernels write the weight's gradient in the type that they read the weight in.
  const auto weight_dtype = weight && weight->scalar_type() == input.scalar_type()
                                ? input.scalar_type()
                                : dtype;
  const std::array<int64_t, 1> none{0}, columns{hidden};
  const Tensor grad_input =
      new_empty(kBackward, input, need_input ? input.sizes() : Sizes(none));
  const Tensor grad_weight =
      rows == 0 && need_weight
          ? new_zeros(kBackward, input, columns, weight_dtype)
          : new_empty(kBackward, input, need_weight ? columns : none, weight_dtype);

  if (input.numel() > 0 && (need_input || need_weight)) {
    with_types_of(kBackward, input, weight, [&]<typename T, typename W>(T, const W* w) {
      const int64_t chunks = need_weight ? device.template chunks<T>(rows, hidden) : 0;
      const std::array<int64_t, 2> sizes{chunks, hidden};
      const Tensor partial = new_empty(kBackward, input, sizes, dtype);
      device.backward(rms_norm_backward_args<T, W>{
          .grad = view_of<const T>(grads),
          .input = view_of<const T>(inputs),
          .weight = w,
          .rrms = data_of<const compute_t<T>>(rrms),
          .added = addend ? data_of<const T>(*addend) : nullptr,
          .grad_input = need_input ? data_of<T>(grad_input) : nullptr,
          .partial = data_of<compute_t<T>>(partial),
          .grad_weight = need_weight ? data_of<W>(grad_weight) : nullptr,
          .rows = rows,
          .hidden = hidden});
    });
  }
  if (!need_weight || weight->scalar_type() == weight_dtype) {
    return {grad_input, grad_weight};
  }
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
  const Tensor rows = viewable(kInPlace, input);
  normalize(kInPlace, device, rows, weight, eps, rows, nullptr);
  if (rows.data_ptr() == input.data_ptr()) return;
  copy_(kInPlace, input, rows);  // no single stride describes its rows
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

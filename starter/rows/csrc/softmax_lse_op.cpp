// starter::softmax_lse for PyTorch: schemas, checks, calls for each device.
#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "softmax_lse.h"
#include "tensors.h"

namespace starter {
namespace {

constexpr auto kName = "starter::softmax_lse";
using Sizes = decltype(std::declval<Tensor>().sizes());

struct Cpu {
  explicit Cpu(const Tensor&) {}

  // Merges 1024 columns at a time, because a long sum in fp32 would lose digits.
  template <typename Args>
  static void compute(const Args& args, int64_t row) {
    auto all =
        args.template part<1>(row, {0, std::min<int64_t>(1024, args.columns), 1});
    for (int64_t begin = 1024; begin < args.columns; begin += 1024) {
      const Share share = {begin, std::min(begin + 1024, args.columns), 1};
      all = Args::merge(all, args.template part<1>(row, share));
    }
    args.template write<1>(row, {0, args.columns, 1}, all);
  }

  template <typename Args>
  void operator()(const Args& args) const {
    const int64_t columns = std::max<int64_t>(args.columns, 1);
    const int64_t rows_per_thread = 4096 / columns + 1;  // of fewer elements, no gain
    torch::stable::parallel_for(0, args.rows, rows_per_thread,
                                [&](int64_t row, int64_t end) {
                                  for (; row < end; ++row) compute(args, row);
                                });
  }
};

#if defined(USE_CUDA)
struct Gpu : GpuOf {
  using GpuOf::GpuOf;

  template <typename Args>
  void operator()(const Args& args) const {
    check_launch(kName, launch_rows(args, stream));
  }
};
#endif

// Where the rows of a tensor are, once it is broadcast to a shape.
template <typename T>
Rows<T> rows_of(const char* name, const Tensor& tensor, Sizes shape) {
  const int64_t dims = shape.size(), missing = dims - tensor.dim();
  Rows<T> rows;
  bool fits = missing >= 0;
  for (int64_t d = 0; fits && d < dims; ++d) {
    const int64_t own = d < missing ? 1 : tensor.size(d - missing);
    const int64_t stride = own == 1 ? 0 : tensor.stride(d - missing);
    fits = own == 1 || own == shape[d];
    if (d == dims - 1) {
      rows.column_stride = stride;
    } else if (rows.dims > 0 && rows.strides[rows.dims - 1] == shape[d] * stride) {
      rows.sizes[rows.dims - 1] *= shape[d];  // one stride describes both dimensions
      rows.strides[rows.dims - 1] = stride;
    } else if (shape[d] != 1) {
      STARTER_CHECK(rows.dims < Rows<T>::kDims, kName, "the strides of ", name,
                    " are too irregular; call contiguous() first");
      rows.sizes[rows.dims] = shape[d];
      rows.strides[rows.dims++] = stride;
    }
  }
  STARTER_CHECK(fits, kName, "expected ", name, " that broadcasts to the shape of the ",
                "scores, but got ", shape_of(tensor));
  rows.data = data_of<T>(tensor);
  return rows;
}

// One number for each row: the shape has the sizes in front of the last one.
Tensor new_lse(const Tensor& scores) {
  const Sizes sizes(scores.sizes().data(), scores.dim() - 1);
  const bool is_double = scores.scalar_type() == ScalarType::Double;
  return torch::stable::new_empty(scores, sizes,
                                  is_double ? ScalarType::Double : ScalarType::Float);
}

void check(const Tensor& scores, double scale) {
  STARTER_CHECK(scores.dim() > 0, kName,
                "expected scores with 1 dimension or more, but got none");
  STARTER_CHECK(std::isfinite(static_cast<float>(scale)), kName,
                "expected scale to be finite in fp32, but got ", scale);
}

template <typename Device>
std::tuple<Tensor, Tensor> softmax_lse(const Tensor& scores,
                                       const std::optional<Tensor>& mask,
                                       double scale) {
  check(scores, scale);
  if (mask) {
    STARTER_CHECK(mask->scalar_type() == ScalarType::Bool, kName,
                  "expected mask of dtype Bool, but got ", mask->scalar_type());
    STARTER_CHECK(mask->device() == scores.device(), kName,
                  "expected mask on the device of the other arguments");
  }
  const Device device(scores);
  const Tensor probs = torch::stable::new_empty(scores, scores.sizes());
  const Tensor lse = new_lse(scores);
  with_type_of(kName, "scores", scores, [&](auto zero) {
    using T = decltype(zero);
    softmax_lse_args<T> args;
    args.scores = rows_of<T>("scores", scores, scores.sizes());
    if (mask) args.mask = rows_of<bool>("mask", *mask, scores.sizes());
    args.probs = data_of<T>(probs);
    args.lse = data_of<compute_t<T>>(lse);
    args.rows = lse.numel();
    args.columns = scores.size(scores.dim() - 1);
    args.scale = static_cast<compute_t<T>>(scale);
    if (args.rows > 0) device(args);
  });
  return {probs, lse};
}

template <typename Device>
Tensor softmax_lse_backward(const std::optional<Tensor>& grad_probs,
                            const std::optional<Tensor>& grad_lse, const Tensor& probs,
                            double scale) {
  check(probs, scale);
  const Device device(probs);
  const Tensor like_lse = new_lse(probs);
  if (grad_probs) check_like(kName, "grad_probs", *grad_probs, probs);
  if (grad_lse) check_like(kName, "grad_lse", *grad_lse, like_lse);
  const Tensor grad_scores = torch::stable::new_empty(probs, probs.sizes());
  with_type_of(kName, "probs", probs, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    softmax_lse_backward_args<T> args;
    args.probs = rows_of<T>("probs", probs, probs.sizes());
    if (grad_probs) args.grad_probs = rows_of<T>("grad", *grad_probs, probs.sizes());
    const Tensor lse = grad_lse ? torch::stable::unsqueeze(*grad_lse, -1) : like_lse;
    if (grad_lse) args.grad_lse = rows_of<C>("grad_lse", lse, probs.sizes());
    args.grad_scores = data_of<T>(grad_scores);
    args.rows = like_lse.numel();
    args.columns = probs.size(probs.dim() - 1);
    args.scale = static_cast<C>(scale);
    if (grad_scores.numel() > 0) device(args);
  });
  return grad_scores;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(starter, m) {
  m.def(
      "softmax_lse(Tensor scores, Tensor? mask=None, float scale=1.0) "
      "-> (Tensor probs, Tensor lse)");
  m.def(
      "softmax_lse_backward(Tensor? grad_probs, Tensor? grad_lse, Tensor probs, "
      "float scale=1.0) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(starter, CPU, m) {
  m.impl("softmax_lse", TORCH_BOX(&softmax_lse<Cpu>));
  m.impl("softmax_lse_backward", TORCH_BOX(&softmax_lse_backward<Cpu>));
}

#if defined(USE_CUDA)  // PyTorch says CUDA for AMD GPUs too
STABLE_TORCH_LIBRARY_IMPL(starter, CUDA, m) {
  m.impl("softmax_lse", TORCH_BOX(&softmax_lse<Gpu>));
  m.impl("softmax_lse_backward", TORCH_BOX(&softmax_lse_backward<Gpu>));
}
#endif

}  // namespace starter

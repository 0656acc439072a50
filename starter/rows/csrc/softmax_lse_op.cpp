// starter::softmax_lse for PyTorch: schemas, checks, calls for each device.
#include <cmath>
#include <optional>
#include <tuple>

#include "row_tensors.h"
#include "softmax_lse.h"

namespace starter {
namespace {

constexpr auto kName = "starter::softmax_lse";

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
  const Device device(scores);
  const Tensor probs = torch::stable::new_empty(scores, scores.sizes());
  const Tensor lse = new_for_rows(scores);
  with_type_of(kName, "scores", scores, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    softmax_lse_args<T> args;
    args.scores = rows_of<T>(kName, "scores", scores, scores);
    args.mask = rows_of<bool>(kName, "mask", mask, scores);
    args.probs = data_of<T>(probs);
    args.lse = data_of<C>(lse);
    args.rows = lse.numel();
    args.columns = scores.size(scores.dim() - 1);
    args.scale = static_cast<C>(scale);
    device(kName, args);
  });
  return {probs, lse};
}

template <typename Device>
Tensor softmax_lse_backward(const std::optional<Tensor>& grad_probs,
                            const std::optional<Tensor>& grad_lse, const Tensor& probs,
                            double scale) {
  check(probs, scale);
  const Device device(probs);
  const Tensor like_lse = new_for_rows(probs);
  if (grad_probs) check_like(kName, "grad_probs", *grad_probs, probs);
  if (grad_lse) check_like(kName, "grad_lse", *grad_lse, like_lse);
  std::optional<Tensor> column;
  if (grad_lse) column = torch::stable::unsqueeze(*grad_lse, -1);
  const Tensor grad_scores = torch::stable::new_empty(probs, probs.sizes());
  with_type_of(kName, "probs", probs, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    softmax_lse_backward_args<T> args;
    args.grad_probs = rows_of<T>(kName, "grad_probs", grad_probs, probs);
    args.grad_lse = rows_of<C>(kName, "grad_lse", column, probs);
    args.probs = rows_of<T>(kName, "probs", probs, probs);
    args.grad_scores = data_of<T>(grad_scores);
    args.rows = like_lse.numel();
    args.columns = probs.size(probs.dim() - 1);
    args.scale = static_cast<C>(scale);
    device(kName, args);
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
  m.impl("softmax_lse", TORCH_BOX(&softmax_lse<RowsOnCpu>));
  m.impl("softmax_lse_backward", TORCH_BOX(&softmax_lse_backward<RowsOnCpu>));
}

#if defined(USE_CUDA)  // PyTorch says CUDA for AMD GPUs too
STABLE_TORCH_LIBRARY_IMPL(starter, CUDA, m) {
  m.impl("softmax_lse", TORCH_BOX(&softmax_lse<RowsOnGpu>));
  m.impl("softmax_lse_backward", TORCH_BOX(&softmax_lse_backward<RowsOnGpu>));
}
#endif

}  // namespace starter

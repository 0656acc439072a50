// Three operators that draw a state by themselves, in the stable ABI of PyTorch 2.13.
// Each is wrong in some place; dropout.py has the function to use.
#include <torch/csrc/stable/generator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <atomic>
#include <optional>

namespace stable = torch::stable::detail;

using torch::headeronly::Layout;
using torch::headeronly::ScalarType;
using torch::stable::Generator;
using torch::stable::Tensor;

Tensor counted(const Tensor& like) {
  static std::atomic<int64_t> calls{0};
  const auto state = torch::stable::new_empty(like, {2}, ScalarType::Long);
  return torch::stable::fill_(state, static_cast<double>(calls++));
}

// [drawn]
Tensor drawn(const Tensor& like, const std::optional<Generator>& generator) {
  constexpr int64_t kMost = INT64_MAX;
  const std::array<int64_t, 1> size{2};
  std::array stack{
      stable::from(kMost),
      stable::from(torch::headeronly::IntHeaderOnlyArrayRef(size.data(), size.size())),
      stable::from(generator),
      stable::from(std::optional(ScalarType::Long)),
      stable::from(std::optional<Layout>()),
      stable::from(std::optional(like.device())),
      stable::from(std::optional<bool>())};  // pinned memory
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::randint", "generator",
                                               stack.data(), TORCH_ABI_VERSION));
  return stable::to<Tensor>(stack[0]);
}
// [/drawn]

// [register]
STABLE_TORCH_LIBRARY_FRAGMENT(draw, m) {
  m.def("counted(Tensor like) -> Tensor");
  m.def("drawn(Tensor like, Generator? generator=None) -> Tensor");
  m.def("drawn_tagged(Tensor like, Generator? generator=None) -> Tensor",
        {at::Tag::nondeterministic_seeded});
}

STABLE_TORCH_LIBRARY_IMPL(draw, CompositeExplicitAutograd, m) {
  m.impl("counted", TORCH_BOX(&counted));
  m.impl("drawn", TORCH_BOX(&drawn));
  m.impl("drawn_tagged", TORCH_BOX(&drawn));
}
// [/register]

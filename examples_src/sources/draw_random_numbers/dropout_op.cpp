// draw::dropout for PyTorch: schema, checks, CPU kernel, and the call of the launcher.
#include "../../../starter/cpp/csrc/tensors.h"
#include "dropout.h"

namespace draw {
namespace {

constexpr auto kName = "draw::dropout";

struct Cpu {
  explicit Cpu(const Tensor&) {}

  template <typename T>
  void dropout(const T* input, T* output, int64_t count, Rate rate,
               const int64_t* state) const {
    constexpr int64_t kGroupsPerTask = 8192;
    const int64_t groups = (count + kWords - 1) / kWords;
    torch::stable::parallel_for(
        0, groups, kGroupsPerTask, [&](int64_t begin, int64_t end) {
          for (int64_t group = begin; group < end; ++group) {
            const int64_t first = group * kWords, left = count - first;
            drop_group(input + first, output + first, left < kWords ? left : kWords,
                       rate, words_of(state, group));
          }
        });
  }
};

#if defined(USE_CUDA)
struct Gpu : GpuOf {
  using GpuOf::GpuOf;

  template <typename... Args>
  void dropout(Args... args) const {
    check_launch(kName, launch_dropout(args..., stream));
  }
};
#endif

// [run]
// The output is contiguous, so that an element has the same number in forward and
// backward, however the gradient lies in memory.
template <typename Device>
Tensor dropout(const Tensor& input, double p, const Tensor& state) {
  STD_TORCH_CHECK(0 <= p && p <= 1, kName, ": expected p between 0 and 1, but got ", p);
  STD_TORCH_CHECK(state.device() == input.device(), kName,
                  ": expected state on the device of input");
  STD_TORCH_CHECK(state.scalar_type() == ScalarType::Long && state.numel() == 2 &&
                      state.is_contiguous(),
                  kName, ": expected state to be two contiguous int64, but got ",
                  state.scalar_type(), " of shape ", shape_of(state));
  const Device device(input);
  const Tensor source = torch::stable::contiguous(input);
  const Tensor output = torch::stable::new_empty(input, input.sizes());
  with_type_of(kName, "input", input, [&](auto zero) {
    using T = decltype(zero);
    if (input.numel() == 0) return;
    device.dropout(data_of<const T>(source), data_of<T>(output), input.numel(), Rate(p),
                   data_of<const int64_t>(state));
  });
  return output;
}
// [/run]

}  // namespace

// [register]
STABLE_TORCH_LIBRARY_FRAGMENT(draw, m) {
  m.def("dropout(Tensor input, float p, Tensor state) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(draw, CPU, m) { m.impl("dropout", TORCH_BOX(&dropout<Cpu>)); }

#if defined(USE_CUDA)
STABLE_TORCH_LIBRARY_IMPL(draw, CUDA, m) {
  m.impl("dropout", TORCH_BOX(&dropout<Gpu>));
}
#endif
// [/register]

}  // namespace draw

// draw::dropout for PyTorch: schema, checks, CPU kernel, and the call of the launcher.
#include "../../../csrc/tensors.h"
#include "dropout.h"

namespace opbook {
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
  check_floating(kName, input);
  check_same_device(kName, "state", state, input);
  OPBOOK_CHECK(0 <= p && p <= 1, kName, "expected p between 0 and 1, but got ", p);
  OPBOOK_CHECK(state.scalar_type() == ScalarType::Long && state.numel() == 2 &&
                   state.is_contiguous(),
               kName, "expected state to be two contiguous int64, but got ",
               state.scalar_type(), " of shape ", shape_of(state));
  const Device device(input);
  const Tensor source = contiguous(kName, input);
  Tensor output = new_empty(kName, input, input.sizes());
  if (input.numel() == 0) return output;
  THO_DISPATCH_V2(input.scalar_type(), kName, AT_WRAP([&] {
                    device.dropout(data_of<scalar_t>(source),
                                   mutable_data_of<scalar_t>(output), input.numel(),
                                   Rate(p), data_of<int64_t>(state));
                  }),
                  AT_FLOATING_TYPES, ScalarType::Half, ScalarType::BFloat16);
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

}  // namespace opbook

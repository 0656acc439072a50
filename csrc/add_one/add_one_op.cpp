// opbook::add_one for PyTorch: schema, CPU kernel, and the call into the GPU launcher.
#include "../tensors.h"
#include "add_one.h"

namespace opbook {

namespace {

constexpr auto kName = "opbook::add_one";

struct Cpu {
  explicit Cpu(const Tensor&) {}

  template <typename scalar_t>
  void add_one(const scalar_t* input, scalar_t* output, int64_t count) const {
    constexpr int64_t kElementsPerTask = 32768;  // at::internal::GRAIN_SIZE
    torch::stable::parallel_for(0, count, kElementsPerTask,
                                [&](int64_t begin, int64_t end) {
                                  for (int64_t i = begin; i < end; ++i)
                                    output[i] = plus_one(input[i]);
                                });
  }
};

#if defined(USE_CUDA)
struct Gpu : GpuOf {
  using GpuOf::GpuOf;

  template <typename scalar_t>
  void add_one(const scalar_t* input, scalar_t* output, int64_t count) const {
    check_launch(kName, launch_add_one(input, output, count, stream));
  }
};
#endif

// [run]
// empty_like keeps the strides of an input whose elements lie side by side, in any
// order of dimensions; then element i of the memory of one is element i of the other.
// Other inputs (sliced, expanded) are copied into that layout first, as eager's result
// would lie.
template <typename Device>
Tensor add_one(const Tensor& input) {
  check_floating(kName, input);
  const Device device(input);
  Tensor output = empty_like(kName, input);
  THO_DISPATCH_V2(input.scalar_type(), kName, AT_WRAP([&] {
                    if (input.numel() == 0) return;
                    const bool same_layout = input.strides().equals(output.strides());
                    const Tensor source =
                        same_layout ? input : copy_(kName, output, input);
                    device.add_one(data_of<scalar_t>(source),
                                   mutable_data_of<scalar_t>(output), input.numel());
                  }),
                  AT_FLOATING_TYPES, ScalarType::Half, ScalarType::BFloat16);
  return output;
}
// [/run]

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(opbook, m) { m.def("add_one(Tensor input) -> Tensor"); }

STABLE_TORCH_LIBRARY_IMPL(opbook, CPU, m) {
  m.impl("add_one", TORCH_BOX(&add_one<Cpu>));
}

#if defined(USE_CUDA)
STABLE_TORCH_LIBRARY_IMPL(opbook, CUDA, m) {
  m.impl("add_one", TORCH_BOX(&add_one<Gpu>));
}
#endif

}  // namespace opbook

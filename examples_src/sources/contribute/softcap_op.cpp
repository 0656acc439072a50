// opbook::softcap for PyTorch: schemas, checks, CPU kernels, calls of the launchers.
#include "../tensors.h"
#include "softcap.h"

namespace opbook {

namespace {

constexpr const char* kName = "opbook::softcap";

void check(const Tensor& input, double cap) {
  check_floating(kName, input);
  OPBOOK_CHECK(cap > 0, kName, "expected cap to be positive, but got ", cap);
}

struct Cpu {
  explicit Cpu(const Tensor&) {}

  template <typename T>
  void softcap(const T* input, T* output, int64_t count, double cap) const {
    for_each(count, [=](int64_t i) { output[i] = softcap_value(input[i], cap); });
  }

  template <typename T>
  void softcap_backward(const T* grad, const T* input, T* output, int64_t count,
                        double cap) const {
    for_each(count,
             [=](int64_t i) { output[i] = softcap_gradient(grad[i], input[i], cap); });
  }

 private:
  template <typename Element>
  static void for_each(int64_t count, const Element& element) {
    constexpr int64_t kElementsPerTask = 4096;  // fewer are not worth a thread
    torch::stable::parallel_for(0, count, kElementsPerTask,
                                [&](int64_t begin, int64_t end) {
                                  for (int64_t i = begin; i < end; ++i) element(i);
                                });
  }
};

#if defined(USE_CUDA)
struct Gpu : GpuOf {
  using GpuOf::GpuOf;

  template <typename... Args>
  void softcap(Args... args) const {
    check_launch(kName, launch_softcap(args..., stream));
  }

  template <typename... Args>
  void softcap_backward(Args... args) const {
    check_launch(kName, launch_softcap_backward(args..., stream));
  }
};
#endif

template <typename Device>
Tensor softcap(const Tensor& input, double cap) {
  check(input, cap);
  const Device device(input);
  const Tensor from = contiguous(kName, input);
  const Tensor output = new_empty(kName, input, input.sizes());
  if (output.numel() == 0) return output;  // a grid of no blocks cannot be launched
  with_type_of(kName, input, [&](auto zero) {
    using T = decltype(zero);
    device.softcap(data_of<const T>(from), data_of<T>(output), output.numel(), cap);
  });
  return output;
}

template <typename Device>
Tensor softcap_backward(const Tensor& grad, const Tensor& input, double cap) {
  check(input, cap);
  check_device(kName, "grad", grad, input);
  OPBOOK_CHECK(
      grad.sizes().equals(input.sizes()) && grad.scalar_type() == input.scalar_type(),
      kName, "expected grad of input's shape and dtype, ", shape_of(input), " and ",
      input.scalar_type(), ", but got ", shape_of(grad), " and ", grad.scalar_type());
  const Device device(input);
  const Tensor of_output = contiguous(kName, grad), from = contiguous(kName, input);
  const Tensor output = new_empty(kName, input, input.sizes());
  if (output.numel() == 0) return output;
  with_type_of(kName, input, [&](auto zero) {
    using T = decltype(zero);
    device.softcap_backward(data_of<const T>(of_output), data_of<const T>(from),
                            data_of<T>(output), output.numel(), cap);
  });
  return output;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(opbook, m) {
  m.def("softcap(Tensor input, float cap) -> Tensor");
  m.def("softcap_backward(Tensor grad, Tensor input, float cap) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(opbook, CPU, m) {
  m.impl("softcap", TORCH_BOX(&softcap<Cpu>));
  m.impl("softcap_backward", TORCH_BOX(&softcap_backward<Cpu>));
}

#if defined(USE_CUDA)
STABLE_TORCH_LIBRARY_IMPL(opbook, CUDA, m) {
  m.impl("softcap", TORCH_BOX(&softcap<Gpu>));
  m.impl("softcap_backward", TORCH_BOX(&softcap_backward<Gpu>));
}
#endif

}  // namespace opbook

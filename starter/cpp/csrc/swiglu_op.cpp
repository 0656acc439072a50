// starter::swiglu for PyTorch: schemas, checks, CPU kernels, calls of the launchers.
#include <cmath>
#include <optional>
#include <tuple>  // [backward/]

#include "swiglu.h"
#include "tensors.h"

namespace starter {
namespace {

constexpr auto kName = "starter::swiglu";

// [devices] the same functions for the tensors of each device
struct Cpu {
  explicit Cpu(const Tensor&) {}

  template <typename T>
  void operator()(const swiglu_args<T>& args) const {
    const auto compute = [=](int64_t i, int64_t n, const T* g, const T* u) {
      for (int64_t j = 0; j < n; ++j)
        args.output[i + j] = swiglu_value(g[j], u[j], args.limit);
    };
    for_each(args.count, compute, args.gate, args.up);
  }

  template <typename T>  // [backward]
  void operator()(const swiglu_backward_args<T>& args) const {
    const auto compute = [=](int64_t i, int64_t n, const T* d, const T* g, const T* u) {
      for (int64_t j = 0; j < n; ++j) {
        T dg, du;
        swiglu_gradients(d[j], g[j], u[j], args.limit, dg, du);
        if (args.grad_gate) args.grad_gate[i + j] = dg;
        if (args.grad_up) args.grad_up[i + j] = du;
      }
    };
    for_each(args.count, compute, args.grad, args.gate, args.up);
  }  // [/backward]
};

#if defined(USE_CUDA)  // [gpu]
struct Gpu : GpuOf {
  using GpuOf::GpuOf;

  template <typename Args>
  void operator()(const Args& args) const {
    check_launch(kName, launch_elements(args, stream));
  }
};
#endif  // [/gpu]
// [/devices]

// [operator]
void check(const Tensor& gate, const Tensor& up, std::optional<double> limit) {
  check_like(kName, "up", up, gate);
  STARTER_CHECK(!limit || *limit > 0, kName, "expected limit to be positive, but got ",
                *limit);
}

template <typename Device>
Tensor swiglu(const Tensor& gate, const Tensor& up, std::optional<double> limit) {
  check(gate, up, limit);
  const Device device(gate);
  const Tensor g = viewable(gate), u = viewable(up);
  const Tensor output = torch::stable::new_empty(gate, gate.sizes());
  with_type_of(kName, "gate", gate, [&](auto zero) {
    using T = decltype(zero);
    device(swiglu_args<T>{view_of<T>(g), view_of<T>(u), data_of<T>(output),
                          gate.numel(), compute_t<T>(limit.value_or(INFINITY))});
  });
  return output;
}

template <typename Device>  // [backward]
std::tuple<Tensor, Tensor> swiglu_backward(const Tensor& grad, const Tensor& gate,
                                           const Tensor& up,
                                           std::optional<double> limit, bool need_gate,
                                           bool need_up) {
  check(gate, up, limit);
  check_like(kName, "grad", grad, gate);
  const Device device(gate);
  const Tensor d = viewable(grad), g = viewable(gate), u = viewable(up);
  const Tensor grad_gate = torch::stable::new_empty(gate, sizes_if(need_gate, gate));
  const Tensor grad_up = torch::stable::new_empty(gate, sizes_if(need_up, up));
  with_type_of(kName, "gate", gate, [&](auto zero) {
    using T = decltype(zero);
    device(swiglu_backward_args<T>{
        view_of<T>(d), view_of<T>(g), view_of<T>(u), data_of<T>(grad_gate),
        data_of<T>(grad_up), gate.numel(), compute_t<T>(limit.value_or(INFINITY))});
  });
  return {grad_gate, grad_up};
}  // [/backward]
// [/operator]

}  // namespace

// [register]
STABLE_TORCH_LIBRARY_FRAGMENT(starter, m) {
  m.def("swiglu(Tensor gate, Tensor up, float? limit=None) -> Tensor");
  m.def(  // [backward]
      "swiglu_backward(Tensor grad, Tensor gate, Tensor up, float? limit=None, "
      "bool need_gate=True, bool need_up=True) "
      "-> (Tensor grad_gate, Tensor grad_up)");  // [/backward]
}

STABLE_TORCH_LIBRARY_IMPL(starter, CPU, m) {
  m.impl("swiglu", TORCH_BOX(&swiglu<Cpu>));
  m.impl("swiglu_backward", TORCH_BOX(&swiglu_backward<Cpu>));  // [backward/]
}

#if defined(USE_CUDA)  // [gpu] PyTorch says CUDA for AMD GPUs too
STABLE_TORCH_LIBRARY_IMPL(starter, CUDA, m) {
  m.impl("swiglu", TORCH_BOX(&swiglu<Gpu>));
  m.impl("swiglu_backward", TORCH_BOX(&swiglu_backward<Gpu>));  // [backward/]
}
#endif  // [/gpu]
// [/register]

}  // namespace starter

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

// [operator] TORCH_LIBRARY: the kernel allocates its result, and computes nothing
namespace {

at::Tensor make(const at::Tensor& input) { return at::empty_like(input); }

void nothing(const at::Tensor& input) {}
// [/operator]

// [autograd] the gradient in C++, at the key Autograd
at::Tensor below_autograd(const at::Tensor& input) {
  at::AutoDispatchBelowAutograd below;
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("call_library::differentiable", "")
                             .typed<at::Tensor(const at::Tensor&)>();
  return op.call(input);
}

struct Make : torch::autograd::Function<Make> {
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& input) {
    return below_autograd(input);
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list grads) {
    return {below_autograd(grads[0])};
  }
};

at::Tensor under_autograd(const at::Tensor& input) {
  return at::GradMode::is_enabled() && input.requires_grad() ? Make::apply(input)
                                                             : below_autograd(input);
}
// [/autograd]

}  // namespace

// [register]
TORCH_LIBRARY(call_library, m) {
  m.def("make(Tensor input) -> Tensor");
  m.def("registered(Tensor input) -> Tensor");
  m.def("differentiable(Tensor input) -> Tensor");
  m.def("nothing(Tensor input) -> ()");
}

TORCH_LIBRARY_IMPL(call_library, CPU, m) {
  m.impl("make", &make);
  m.impl("registered", &make);
  m.impl("differentiable", &make);
  m.impl("nothing", &nothing);
}

TORCH_LIBRARY_IMPL(call_library, Autograd, m) {
  m.impl("differentiable", &under_autograd);
}
// [/register]

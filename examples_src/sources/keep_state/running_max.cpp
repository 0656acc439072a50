// State in a C++ class: an operator takes the object as its second argument.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <algorithm>

// [class]
// The largest absolute value that was seen, which scales what follows.
struct RunningMax : torch::CustomClassHolder {
  explicit RunningMax(double value) : value(value) {}
  double value;
};

at::Tensor scaled(const at::Tensor& x, const c10::intrusive_ptr<RunningMax>& seen) {
  seen->value = std::max(seen->value, x.abs().max().item<double>());
  return x / seen->value;
}

TORCH_LIBRARY(keep_state, library) {
  library.class_<RunningMax>("RunningMax")
      .def(torch::init<double>())
      .def("value",
           [](const c10::intrusive_ptr<RunningMax>& self) { return self->value; })
      .def("__obj_flatten__",
           [](const c10::intrusive_ptr<RunningMax>& self) {
             return std::make_tuple(std::make_tuple(std::string("value"), self->value));
           })
      .def_pickle(
          [](const c10::intrusive_ptr<RunningMax>& self) { return self->value; },
          [](double value) { return c10::make_intrusive<RunningMax>(value); });
  library.def(
      "scaled(Tensor x, __torch__.torch.classes.keep_state.RunningMax seen) -> Tensor");
}

TORCH_LIBRARY_IMPL(keep_state, CompositeExplicitAutograd, library) {
  library.impl("scaled", scaled);
}
// [/class]

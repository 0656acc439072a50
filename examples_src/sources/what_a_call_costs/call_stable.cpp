#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

// [operator] the stable ABI: the same kernels, boxed
namespace {

using torch::stable::Tensor;

Tensor make(const Tensor& input) { return torch::stable::empty_like(input); }

// Without the dispatcher, which looks an operator up by its name and boxes arguments.
Tensor make_in_c(const Tensor& input) {
  const auto sizes = input.sizes(), strides = input.strides();
  int32_t dtype, type, index;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(input.get(), &dtype));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(input.get(), &type));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(input.get(), &index));
  AtenTensorHandle made;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
      sizes.size(), sizes.data(), strides.data(), dtype, type, index, &made));
  return Tensor(made);
}

void nothing(const Tensor& input) {}

}  // namespace

STABLE_TORCH_LIBRARY(call_stable, m) {
  m.def("make(Tensor input) -> Tensor");
  m.def("make_in_c(Tensor input) -> Tensor");
  m.def("registered(Tensor input) -> Tensor");
  m.def("nothing(Tensor input) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(call_stable, CPU, m) {
  m.impl("make", TORCH_BOX(&make));
  m.impl("make_in_c", TORCH_BOX(&make_in_c));
  m.impl("registered", TORCH_BOX(&make));
  m.impl("nothing", TORCH_BOX(&nothing));
}
// [/operator]

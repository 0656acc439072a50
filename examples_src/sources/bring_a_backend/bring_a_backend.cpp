// A backend for PyTorch on the device type PrivateUse1: memory, devices, copies, views,
// and the CPU for every operator that has no kernel. Its memory is the host's, so that
// it runs on every machine; the comments say what real hardware would do instead.
#include "bring_a_backend.h"

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

namespace backend {

namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

// [devices]
constexpr c10::DeviceIndex kDevices = 2;
thread_local c10::DeviceIndex current = 0;

c10::DeviceIndex exchange(c10::DeviceIndex index) {
  TORCH_CHECK(index >= 0 && index < kDevices, "opbook: expected a device index below ",
              static_cast<int>(kDevices), ", but got ", static_cast<int>(index));
  return std::exchange(current, index);  // hardware: its set_device
}
// [/devices]

// [allocator]
struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes ? std::malloc(bytes) : nullptr;  // hardware: its malloc
    TORCH_CHECK_WITH(OutOfMemoryError, data || !bytes, "opbook: no memory for ", bytes,
                     " bytes");
    return {data, data, &std::free, c10::Device(kType, current)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);  // hardware: its memcpy, device to device
  }
};

Allocator allocator;
REGISTER_ALLOCATOR(kType, &allocator);
// [/allocator]

// [guard]
// With no queue of work there is one stream, and nothing to wait for.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kType, exchange(device.index())};
  }
  c10::Device getDevice() const override { return {kType, current}; }
  void setDevice(c10::Device device) const override { exchange(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(c10::DeviceIndex) const override {}
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);
// [/guard]

// [hooks]
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(c10::DeviceIndex index) const override { exchange(index); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return exchange(index);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchange(index);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage,
                              size_t bytes) const override {
    c10::DataPtr data = allocator.allocate(bytes);
    allocator.copy_data(data.get(), storage.data(), std::min(bytes, storage.nbytes()));
    storage.set_data_ptr_noswap(std::move(data));
    storage.set_nbytes(bytes);
  }
};

const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);  // PyTorch keeps it for good
  return true;
}();
// [/hooks]

// [empty]
constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device,
                 std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &allocator, kKeys,
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, &allocator, kKeys,
                                           c10::dtype_or_default(dtype));
}
// [/empty]

// [copy]
// A view of the same bytes that says it is a CPU tensor. Hardware has no such thing: it
// copies contiguous bytes from one memory to the other, and packs the rest first.
at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  at::Tensor host = at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                                  tensor.options().device(c10::kCPU));
  host.unsafeGetTensorImpl()->_set_conj(tensor.is_conj());
  host.unsafeGetTensorImpl()->_set_neg(tensor.is_neg());
  return host;
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  at::Tensor host = on_host(self);
  at::_ops::copy_::call(host, on_host(source), non_blocking);
  return self;
}

// How the fallback below brings its results back.
at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& self) {
  at::Tensor to = self;
  at::native::resize_(to, source.sizes());
  return copy_(to, source, false);
}
// [/copy]

// [fallback]
std::mutex mutex;
std::vector<std::string> calls;

// Eager refuses a mix of devices, except for numbers: CPU tensors without dimensions.
void check_device(const at::Tensor& tensor, std::optional<at::Device>& device,
                  const c10::OperatorHandle& op) {
  if (!tensor.defined() || (tensor.is_cpu() && tensor.dim() == 0)) return;
  if (!device) device = tensor.device();
  TORCH_CHECK(*device == tensor.device(), op.operator_name(),
              ": Expected all tensors to be on the same device, but found at least two "
              "devices, ",
              *device, " and ", tensor.device(), "!");
}

// cpu_fallback copies the tensors to the CPU, whatever their device, and the results
// back. It cannot make a view: a copy shares no memory with its source.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::optional<at::Device> device;
  for (const auto& argument :
       torch::jit::last(*stack, op.schema().arguments().size())) {
    if (argument.isTensor()) check_device(argument.toTensor(), device, op);
    if (!argument.isTensorList()) continue;
    for (const auto& tensor : argument.toTensorVector()) {
      check_device(tensor, device, op);
    }
  }
  note(c10::toString(op.operator_name()) + " on the CPU");
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}
// [/fallback]

std::vector<std::string> take_calls() {
  const std::lock_guard lock(mutex);
  return std::exchange(calls, {});
}

}  // namespace

void note(const std::string& call) {
  const std::lock_guard lock(mutex);
  calls.push_back(call);
}

// [register]
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("copy_", &copy_);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  // These change sizes, strides or the storage of a tensor and no memory. PyTorch's own
  // code does it for any device, and a copy on the CPU could not.
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("set_.source_Storage",
         [](at::Tensor& self, at::Storage source) -> at::Tensor& {
           return at::native::set_(self, std::move(source));
         });
  m.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
  m.impl("resize_", &at::native::resize_);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// Under autocast every operator looks for a rule first. "Fall through" is: no rule.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY(opbook_backend, m) {
  m.def("calls() -> str[]", &take_calls);
  m.def("device_count() -> int", [] { return int64_t{kDevices}; });
}
// [/register]

}  // namespace backend

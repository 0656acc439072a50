// A backend for PyTorch on the device type PrivateUse1: memory, devices, copies, views,
// and the CPU for every operator that has no kernel. Its memory is the host's, so that
// it runs on every machine; the comments say what real hardware would do instead.
#include "bring_a_backend.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace backend {

namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

const c10::impl::DeviceGuardImplInterface* guard() {
  return c10::impl::getDeviceGuardImpl(kType);
}

// Wait for what is queued on the current stream of a device.
void wait(c10::Device device) {
  guard()->synchronizeStream(guard()->getStream(device));
}

// [allocator]
struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes ? std::malloc(bytes) : nullptr;  // hardware: its malloc
    TORCH_CHECK_WITH(OutOfMemoryError, data || !bytes, "opbook: no memory for ", bytes,
                     " bytes");
    return {data, data, &std::free, guard()->getDevice()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    wait(guard()->getDevice());
    default_copy_data(to, from, bytes);  // hardware: its memcpy, device to device
  }
};

Allocator allocator;
REGISTER_ALLOCATOR(kType, &allocator);
// [/allocator]

// [pinned]
// Memory of the host that the device may read and write later, while the host goes on.
struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = std::malloc(std::max<size_t>(bytes, 1));  // hardware: its host malloc
    TORCH_CHECK_WITH(OutOfMemoryError, data, "opbook: no host memory for ", bytes,
                     " bytes");
    const std::lock_guard lock(mutex);
    addresses.insert(data);
    return {data, data, &release, c10::kCPU};
  }
  static void release(void* data) {
    const std::lock_guard lock(mutex);
    addresses.erase(data);
    std::free(data);
  }
  static bool owns(const void* data) {
    const std::lock_guard lock(mutex);
    return addresses.count(data) > 0;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  static inline std::mutex mutex;
  static inline std::set<const void*> addresses;
};

PinnedAllocator pinned;
// [/pinned]

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// [generator]
// The seed of a device. Its random numbers come from a generator of the CPU that
// belongs to it; hardware keeps seed and offset of its own.
struct Generator final : c10::GeneratorImpl {
  static c10::DeviceType device_type() { return kType; }
  Generator(c10::DeviceIndex index, at::Generator cpu)
      : GeneratorImpl({kType, index}, kKeys), host(std::move(cpu)) {}
  static at::Generator make(c10::DeviceIndex index) {
    if (index < 0) index = guard()->getDevice().index();
    return at::make_generator<Generator>(index, at::detail::createCPUGenerator());
  }
  void set_current_seed(uint64_t seed) override { host.set_current_seed(seed); }
  uint64_t current_seed() const override { return host.current_seed(); }
  uint64_t seed() override { return host.seed(); }
  void set_offset(uint64_t offset) override { host.set_offset(offset); }
  uint64_t get_offset() const override { return host.get_offset(); }
  void set_state(const c10::TensorImpl& state) override {
    host.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return host.unsafeGetGeneratorImpl()->get_state();
  }
  Generator* clone_impl() const override {
    return new Generator(device().index(), host.clone());
  }
  at::Generator host;
};
// [/generator]

// [default generator]
const at::Generator& default_generator(c10::DeviceIndex index) {
  static const std::vector<at::Generator> generators = [] {
    std::vector<at::Generator> all;
    for (int i = 0; i < guard()->deviceCount(); ++i) all.push_back(Generator::make(i));
    return all;
  }();
  return generators.at(index < 0 ? guard()->getDevice().index() : index);
}
// [/default generator]

// [seed]
// A kernel of the CPU takes only a generator of the CPU.
void use_seed(const c10::OperatorHandle& op, torch::jit::Stack* stack,
              c10::DeviceIndex index) {
  bool found = false;
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].type()->str() != "Generator?") continue;
    c10::IValue& value = torch::jit::peek(*stack, i, arguments.size());
    at::Generator generator = default_generator(index);
    if (!value.isNone()) generator = value.toGenerator();
    value = at::check_generator<Generator>(generator)->host;
    found = true;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(found || !op.hasTag(at::Tag::nondeterministic_seeded),
                              op.operator_name(), " would use the seed of the CPU");
}

// The CPU's kernel takes no generator at all.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  const bool drops = p > 0 && train.value_or(true);
  at::Tensor mask = at::ones_like(input, input.options().dtype(at::kBool));
  if (!drops) return {input.clone(), mask};
  mask.bernoulli_(1 - p);
  return {input.mul(mask).mul_(p < 1 ? 1 / (1 - p) : 0.0), mask};
}
// [/seed]

// [hooks]
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return guard()->deviceCount(); }
  c10::DeviceIndex getCurrentDevice() const override {
    return guard()->getDevice().index();
  }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    guard()->setDevice({kType, index});
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return guard()->exchangeDevice({kType, index}).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage,
                              size_t bytes) const override {
    const c10::DeviceGuard on_device(storage.device());
    guard()->synchronizeDevice(storage.device().index());  // a task may use it
    c10::DataPtr data = allocator.allocate(bytes);
    allocator.copy_data(data.get(), storage.data(), std::min(bytes, storage.nbytes()));
    storage.set_data_ptr_noswap(std::move(data));
    storage.set_nbytes(bytes);
  }
  // [/hooks]
  // [more hooks]
  bool isPinnedPtr(const void* data) const override {
    return PinnedAllocator::owns(data);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return Generator::make(index);
  }
  // [/more hooks]
};

const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);  // PyTorch keeps it for good
  return true;
}();

// [empty]
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
// A CPU tensor over the same bytes. Hardware has no such thing: it copies contiguous
// bytes from one memory to the other, and packs the rest first.
at::Tensor on_host(const at::Tensor& tensor) {
  const auto keep = [storage = tensor.storage()](void*) {};  // until the copy has run
  at::Tensor host = at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                                  keep, tensor.options().device(c10::kCPU));
  host.unsafeGetTensorImpl()->_set_conj(tensor.is_conj());
  host.unsafeGetTensorImpl()->_set_neg(tensor.is_neg());
  return host;
}

bool is_pinned(const at::Tensor& tensor) {
  return tensor.is_cpu() && PinnedAllocator::owns(tensor.storage().data());
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  const at::Tensor output = on_host(self), input = on_host(source).expand_as(self);
  const auto copy = [output, input] {
    at::_ops::copy_::call(const_cast<at::Tensor&>(output), input, false);
  };
  const c10::Device from = source.device(), to = self.device();
  if (from == to || (non_blocking && (is_pinned(source) || is_pinned(self)))) {
    const c10::DeviceGuard on_device(from.is_cpu() ? to : from);
    launch(copy);
  } else {
    for (const c10::Device device : {from, to}) {
      if (!device.is_cpu()) wait(device);
    }
    copy();
  }
  return self;
}

// PyTorch's own frees the memory at once, which a task may still use.
const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size,
                          std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard on_device(self.device());
  guard()->synchronizeDevice(self.device().index());
  return at::native::resize_(self, size, format);
}

// How the fallback below brings its results back.
at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& self) {
  at::Tensor to = self;
  resize_(to, source.sizes(), std::nullopt);
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
  use_seed(op, stack, device ? device->index() : -1);
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
  m.impl("resize_", &resize_);
  m.impl("native_dropout", &native_dropout);
  // A task owns the tensors that it uses, so no memory can be reused too early.
  m.impl("record_stream", [](at::Tensor&, c10::Stream) {});
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// [autocast]
// Call an operator with other dtypes: those of its floating-point tensors change.
template <bool lower>
void rule(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      c10::DispatchKey::AutocastPrivateUse1);
  const at::ScalarType dtype =
      lower ? at::autocast::get_autocast_dtype(kType) : at::kFloat;
  const size_t count = op.schema().arguments().size();
  for (size_t i = 0; i < count; ++i) {
    c10::IValue& value = torch::jit::peek(*stack, i, count);
    if (!value.isTensor()) continue;
    value = at::autocast::cached_cast(dtype, value.toTensor(), kType);
  }
  op.callBoxed(stack);
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  for (const char* name : {"mm", "bmm", "addmm", "baddbmm", "matmul", "linear"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&rule<true>>());
  }
  for (const char* name : {"exp", "log", "softmax.int", "log_softmax.int", "layer_norm",
                           "mse_loss", "nll_loss"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&rule<false>>());
  }
}

// An operator without a rule runs as it is called.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}
// [/autocast]

TORCH_LIBRARY(opbook_backend, m) {
  m.def("calls() -> str[]", &take_calls);
  m.def("device_count() -> int", [] { return int64_t{guard()->deviceCount()}; });
  m.def("default_generator(int device) -> Generator?",
        [](int64_t device) { return default_generator(device); });
  m.def("sleep(int milliseconds) -> ()", [](int64_t milliseconds) {
    launch([milliseconds] {
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    });
  });
}
// [/register]

}  // namespace backend

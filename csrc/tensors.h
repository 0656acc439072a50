// What every operator's *_op.cpp needs of tensors, on top of the LibTorch Stable ABI:
// words for error messages, checks that use them, calls of ATen, and the current GPU
// stream.
#pragma once

#include <dlfcn.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "portable.h"

namespace opbook {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Sizes = torch::headeronly::IntHeaderOnlyArrayRef;

// Throws the parts as one message, which begins with the operator's name; with
// STD_TORCH_CHECK it would begin with a C++ function and a file. Python gets a
// RuntimeError, whatever is thrown here: only libtorch's own exceptions become errors
// of other types, and they are not part of the stable ABI.
template <typename... Parts>
[[noreturn]] void fail(const char* op, const Parts&... parts) {
  std::ostringstream text;
  ((text << op << ": ") << ... << parts);
  throw std::runtime_error(text.str());
}

// A macro, so that the words are put together only when they are needed.
#define OPBOOK_CHECK(condition, ...) ((condition) ? void() : fail(__VA_ARGS__))

inline std::string shape_of(Sizes sizes) {
  std::string text = "[";
  for (size_t d = 0; d < sizes.size(); ++d) {
    text += (d ? ", " : "") + std::to_string(sizes[d]);
  }
  return text + "]";
}

inline std::string shape_of(const Tensor& tensor) { return shape_of(tensor.sizes()); }

inline std::string device_of(const Tensor& tensor) {
  const auto device = tensor.device();
  const std::string index = ":" + std::to_string(device.index());
  if (device.is_cpu()) return "cpu";
  if (device.is_cuda()) return "cuda" + index;
  return "device type " + std::to_string(static_cast<int>(device.type())) + index;
}

inline bool is_float8(ScalarType dtype) {
  return dtype == ScalarType::Float8_e4m3fn || dtype == ScalarType::Float8_e4m3fnuz ||
         dtype == ScalarType::Float8_e5m2 || dtype == ScalarType::Float8_e5m2fnuz ||
         dtype == ScalarType::Float8_e8m0fnu;
}

// A pointer to the elements: data_of<const float> to read, data_of<float> to write.
template <typename T>
T* data_of(const Tensor& tensor) {
  if constexpr (std::is_const_v<T>) return static_cast<T*>(tensor.const_data_ptr());
  return static_cast<T*>(tensor.mutable_data_ptr());
}

// `op` is the operator's full name, `name` the argument's, `input` what it must match.
inline void check_device(const char* op, const char* name, const Tensor& tensor,
                         const Tensor& input) {
  OPBOOK_CHECK(tensor.device() == input.device(), op, "expected ", name,
               " on the device of input (", device_of(input), "), but got ",
               device_of(tensor));
}

inline void check_like(const char* op, const char* name, const Tensor& tensor,
                       const Tensor& input) {
  OPBOOK_CHECK(tensor.sizes().equals(input.sizes()) &&
                   tensor.scalar_type() == input.scalar_type(),
               op, "expected ", name, " with input's shape ", shape_of(input),
               " and dtype ", input.scalar_type(), ", but got ", shape_of(tensor),
               " and ", tensor.scalar_type());
  check_device(op, name, tensor, input);
}

// Calls `run` with a zero of the C++ type that input's dtype stands for.
template <typename Run>
void with_type_of(const char* op, const Tensor& input, const Run& run) {
  switch (input.scalar_type()) {
    case ScalarType::Half:
      return run(c10::Half(0));
    case ScalarType::BFloat16:
      return run(c10::BFloat16(0));
    case ScalarType::Float:
      return run(0.0f);
    case ScalarType::Double:
      return run(0.0);
    default:
      fail(op, "expected input to be fp16, bf16, fp32 or fp64, but got ",
           input.scalar_type());
  }
}

inline void check_floating(const char* op, const Tensor& input) {
  with_type_of(op, input, [](auto) {});
}

inline void check_not_scalar(const char* op, const Tensor& input) {
  OPBOOK_CHECK(input.dim() >= 1, op,
               "expected input to have at least 1 dimension, but got shape ",
               shape_of(input));
}

inline void check_launch(const char* op, const char* error) {
  OPBOOK_CHECK(error == nullptr, op, "kernel launch failed: ", error);
}

// Calls an operator of ATen by name. If it throws, the call returns an error code.
inline void call_aten(const char* op, const char* overload, StableIValue* stack) {
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(op, overload, stack, TORCH_ABI_VERSION));
}

// The message of ATen's last exception. PyTorch keeps it since 2.13, and this library
// runs on older versions too, so the function that returns it is looked up at run time.
// The type is not kept: torch.OutOfMemoryError becomes a RuntimeError.
inline std::string words_of_aten() {
  const auto words = reinterpret_cast<const char* (*)()>(
      dlsym(RTLD_DEFAULT, "torch_exception_get_what_without_backtrace"));
  return words ? words() : "PyTorch has written to stderr why";
}

// Returns what `call` returns, which calls ATen's operator `name`. If ATen throws, the
// error says for which operator of ours, with which shape, and why.
template <typename Shape, typename Call>
auto from_aten(const char* op, const char* name, const Shape& shape, const Call& call) {
  try {
    return call();
  } catch (const std::runtime_error&) {
    fail(op, name, " failed for shape ", shape_of(shape), ": ", words_of_aten());
  }
}

// A contiguous tensor on the device of `like`, with its dtype or another one. PyTorch's
// C function makes it: torch::stable::new_empty is slower, because it looks
// aten::new_empty up by its name, and passes the arguments boxed.
inline Tensor new_empty(const char* op, const Tensor& like, Sizes sizes,
                        std::optional<ScalarType> dtype = std::nullopt) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0; stride *= std::max<int64_t>(sizes[d], 1)) {
    strides[d] = stride;
  }
  const auto wanted = torch::stable::detail::from(dtype.value_or(like.scalar_type()));
  int32_t device_type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
  return from_aten(op, "aten::empty_strided", sizes, [&] {
    AtenTensorHandle made = nullptr;
    TORCH_ERROR_CODE_CHECK(
        aoti_torch_empty_strided(sizes.size(), sizes.data(), strides.data(),
                                 torch::stable::detail::to<int32_t>(wanted),
                                 device_type, like.get_device_index(), &made));
    return Tensor(made);
  });
}

// ATen's operators that ours call, with `op` for the errors.
inline Tensor new_zeros(const char* op, const Tensor& like, Sizes sizes,
                        std::optional<ScalarType> dtype = std::nullopt) {
  return from_aten(op, "aten::new_zeros", sizes,
                   [&] { return torch::stable::new_zeros(like, sizes, dtype); });
}

inline Tensor empty_like(const char* op, const Tensor& tensor) {
  return from_aten(op, "aten::empty_like", tensor,
                   [&] { return torch::stable::empty_like(tensor); });
}

inline Tensor contiguous(const char* op, const Tensor& tensor) {
  return from_aten(op, "aten::contiguous", tensor,
                   [&] { return torch::stable::contiguous(tensor); });
}

inline Tensor to(const char* op, const Tensor& tensor, ScalarType dtype) {
  return from_aten(op, "aten::to", tensor,
                   [&] { return torch::stable::to(tensor, dtype); });
}

inline Tensor copy_(const char* op, Tensor target, const Tensor& source) {
  return from_aten(op, "aten::copy_", target,
                   [&] { return torch::stable::copy_(target, source); });
}

#if defined(USE_CUDA)
// [gpu]
// While it lives, allocations and launches go to the device of `tensor`. `stream` is
// the stream that the caller's other work on this device is queued on.
struct GpuOf {
  std::optional<torch::stable::accelerator::DeviceGuard> guard;
  void* stream = nullptr;

  explicit GpuOf(const Tensor& tensor) {
    const auto device = tensor.get_device_index();
    // To ask takes less time than to set the device and to reset it.
    if (torch::stable::accelerator::getCurrentDeviceIndex() != device) {
      guard.emplace(device);
    }
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  }
};
// [/gpu]
#endif

}  // namespace opbook

// What every operator's *_op.cpp needs of tensors, on top of the LibTorch Stable ABI:
// words for error messages, checks that use them, and the current GPU stream.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/Dispatch_v2.h>

#include <string>

#include "portable.h"

namespace opbook {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

inline std::string shape_of(const Tensor& tensor) {
  std::string text = "[";
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    text += (d ? ", " : "") + std::to_string(tensor.size(d));
  }
  return text + "]";
}

inline std::string device_of(const Tensor& tensor) {
  const auto device = tensor.device();
  const std::string index = std::to_string(device.index());
  switch (device.type()) {
    case torch::headeronly::DeviceType::CPU:
      return "cpu";
    case torch::headeronly::DeviceType::CUDA:
      return "cuda:" + index;
    case torch::headeronly::DeviceType::Meta:
      return "meta";
    default:
      return "device type " + std::to_string(static_cast<int>(device.type())) + ":" +
             index;
  }
}

inline bool is_float8(ScalarType dtype) {
  return dtype == ScalarType::Float8_e4m3fn || dtype == ScalarType::Float8_e4m3fnuz ||
         dtype == ScalarType::Float8_e5m2 || dtype == ScalarType::Float8_e5m2fnuz ||
         dtype == ScalarType::Float8_e8m0fnu;
}

template <typename T>
const T* data_of(const Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

template <typename T>
T* mutable_data_of(const Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

// `op` is the operator's full name, `name` the argument's, `input` what it must match.
inline void check_same_device(const char* op, const char* name, const Tensor& tensor,
                              const Tensor& input) {
  STD_TORCH_CHECK(tensor.device() == input.device(), op, ": expected ", name,
                  " on the device of input (", device_of(input), "), but got ",
                  device_of(tensor));
}

inline void check_launch(const char* op, const char* error) {
  STD_TORCH_CHECK(error == nullptr, op, ": kernel launch failed: ", error);
}

#if defined(USE_CUDA)
// [gpu]
// The stream that the caller's other work on this device is queued on.
inline void* current_stream(int32_t device_index) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device_index, &stream));
  return stream;
}

// While it lives, allocations and launches go to the device of `tensor`, whose current
// stream it knows.
struct GpuOf {
  torch::stable::accelerator::DeviceGuard guard;
  void* stream;

  explicit GpuOf(const Tensor& tensor)
      : guard(tensor.get_device_index()),
        stream(current_stream(tensor.get_device_index())) {}
};
// [/gpu]
#endif

}  // namespace opbook

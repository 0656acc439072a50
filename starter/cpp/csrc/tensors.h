// What the registration of every operator needs of tensors, in the LibTorch Stable ABI.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <sstream>
#include <stdexcept>
#include <string>

#include "portable.h"

namespace starter {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Raises a RuntimeError in Python. With STD_TORCH_CHECK, it would begin with a path.
template <typename... Parts>
[[noreturn]] void fail(const char* op, const Parts&... parts) {
  std::ostringstream text;
  ((text << op << ": ") << ... << parts);
  throw std::runtime_error(text.str());
}
#define STARTER_CHECK(condition, ...) ((condition) ? void() : fail(__VA_ARGS__))

inline std::string shape_of(const Tensor& tensor) {
  std::string text = "[";
  for (const int64_t size : tensor.sizes()) {
    text.append(text.size() > 1 ? ", " : "").append(std::to_string(size));
  }
  return text.append("]");
}

// Refuses a tensor without the shape, dtype and device of another argument, `model`.
inline void check_like(const char* op, const char* name, const Tensor& tensor,
                       const Tensor& model) {
  STARTER_CHECK(tensor.sizes().equals(model.sizes()), op, "expected ", name,
                " of shape ", shape_of(model), ", but got ", shape_of(tensor));
  STARTER_CHECK(tensor.scalar_type() == model.scalar_type(), op, "expected ", name,
                " of dtype ", model.scalar_type(), ", but got ", tensor.scalar_type());
  STARTER_CHECK(tensor.device() == model.device(), op, "expected ", name,
                " on the device of the other arguments");
}

// The shape of a gradient of `tensor`; of one that nobody needs, which has no elements.
inline auto sizes_if(bool is_needed, const Tensor& tensor) {  // [backward]
  static constexpr int64_t kNothing = 0;
  return is_needed ? tensor.sizes() : decltype(tensor.sizes())(&kNothing, 1);
}  // [/backward]

template <typename T>
T* data_of(const Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

// Calls `run` with a zero of the C++ type that the tensor's dtype stands for.
template <typename Run>
void with_type_of(const char* op, const char* name, const Tensor& tensor, Run run) {
  switch (tensor.scalar_type()) {
    case ScalarType::Half:
      return run(c10::Half(0));
    case ScalarType::BFloat16:
      return run(c10::BFloat16(0));
    case ScalarType::Float:
      return run(0.0f);
    case ScalarType::Double:
      return run(0.0);
    default:
      fail(op, "expected ", name, " of fp16, bf16, fp32 or fp64, but got ",
           tensor.scalar_type());
  }
}

#if defined(USE_CUDA)
// While it lives, the tensor's GPU is current. `stream` is the caller's stream there.
struct GpuOf {
  torch::stable::accelerator::DeviceGuard guard;
  void* stream = nullptr;

  explicit GpuOf(const Tensor& tensor) : guard(tensor.get_device_index()) {
    TORCH_ERROR_CODE_CHECK(
        aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  }
};

inline void check_launch(const char* op, const char* error) {
  STARTER_CHECK(error == nullptr, op, "kernel launch failed: ", error);
}
#endif

}  // namespace starter

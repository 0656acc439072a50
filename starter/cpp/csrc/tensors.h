// What the registration of every operator needs of tensors, in the LibTorch Stable ABI.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <string>

#include "vectors.h"

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

// The tensor itself if a View can describe it (rows equally far apart), or else a copy.
inline Tensor viewable(const Tensor& tensor) {
  const int64_t last = tensor.dim() - 1;
  bool regular = last >= 1 && tensor.stride(last) == 1;
  for (int64_t d = 0; d + 1 < last; ++d) {
    regular = regular && tensor.stride(d) == tensor.size(d + 1) * tensor.stride(d + 1);
  }
  return regular ? tensor : torch::stable::contiguous(tensor);
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

template <typename T>
View<T> view_of(const Tensor& viewable) {
  if (viewable.is_contiguous()) return {data_of<T>(viewable), 1, 1};
  const int64_t last = viewable.dim() - 1;
  return {data_of<T>(viewable), viewable.size(last), viewable.stride(last - 1)};
}

// Compiled for three generations of CPUs; the loader takes the newest that runs here.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define STARTER_VECTORS \
  __attribute__((flatten, target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define STARTER_VECTORS
#endif

// Calls `compute(i, n, p...)` for all elements from `i` on, n of them at a time, which
// lie side by side at the pointers p, one for each view.
template <typename Compute, typename... Views>
STARTER_VECTORS void for_pieces(int64_t i, int64_t end, Compute compute,
                                Views... views) {
  const int64_t row = std::min({end, (views.is_contiguous() ? end : views.columns)...});
  for (int64_t n; i < end; i += n) {
    n = std::min(end, i - i % row + row) - i;
    compute(i, n, views.at(i)...);
  }
}

// The same for `count` elements, on several threads of the CPU.
template <typename Compute, typename... Views>
void for_each(int64_t count, Compute compute, Views... views) {
  constexpr int64_t kElementsPerThread = 4096;  // fewer are not worth another thread
  torch::stable::parallel_for(
      0, count, kElementsPerThread,
      [&](int64_t begin, int64_t end) { for_pieces(begin, end, compute, views...); });
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

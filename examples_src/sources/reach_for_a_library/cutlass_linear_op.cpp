// reach_cutlass::linear_gelu for PyTorch: schema, checks, and the call of the launcher.
#include <cstdint>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "../../../starter/cpp/csrc/tensors.h"

namespace cutlass_linear {

using namespace starter;

const char* launch_cutlass_linear(const c10::BFloat16* input,
                                  const c10::BFloat16* weight,
                                  const c10::BFloat16* bias, c10::BFloat16* output,
                                  int rows, int columns, int depth, void* stream);

namespace {

constexpr const char* kName = "reach_cutlass::linear_gelu";
constexpr int64_t kAligned = 8;  // elements in 16 bytes

template <typename... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream text;
  text << kName << ": ";
  (text << ... << parts);
  throw std::runtime_error(text.str());
}

Tensor checked(const char* name, const Tensor& tensor, const Tensor& input) {
  if (tensor.device() != input.device()) {
    fail("expected ", name, " on the device of input");
  }
  if (tensor.scalar_type() != ScalarType::BFloat16) {
    fail("expected ", name, " to be bf16, but got ", tensor.scalar_type());
  }
  const Tensor rows = torch::stable::contiguous(tensor);
  if (reinterpret_cast<std::uintptr_t>(rows.data_ptr()) % 16 != 0) {
    fail("expected ", name, " to begin at a multiple of 16 bytes: pass a clone");
  }
  return rows;
}

Tensor linear_gelu(const Tensor& input, const Tensor& weight,
                   const std::optional<Tensor>& bias) {
  if (input.dim() < 1 || weight.dim() != 2 || weight.size(1) != input.size(-1)) {
    fail("expected input [..., depth] and weight [columns, depth], but got ",
         shape_of(input), " and ", shape_of(weight));
  }
  const int64_t columns = weight.size(0), depth = weight.size(1);
  if (depth == 0 || depth % kAligned != 0 || columns % kAligned != 0) {
    fail("expected columns and depth to be multiples of 8, but weight is ",
         shape_of(weight));
  }
  if (bias && (bias->dim() != 1 || bias->size(0) != columns)) {
    fail("expected bias of shape [", columns, "], but got ", shape_of(*bias));
  }
  const GpuOf gpu(input);
  const Tensor x = checked("input", input, input), w = checked("weight", weight, input);
  const Tensor b = bias ? checked("bias", *bias, input) : x;
  std::vector<int64_t> shape(input.sizes().begin(), input.sizes().end());
  shape.back() = columns;
  const Tensor output = torch::stable::new_empty(x, shape);
  if (output.numel() == 0) return output;
  const int64_t rows = x.numel() / depth;
  if (rows > std::numeric_limits<int>::max()) {
    fail("expected fewer than 2**31 rows, but got ", rows);
  }
  using T = c10::BFloat16;
  check_launch(kName, launch_cutlass_linear(
                          data_of<T>(x), data_of<T>(w), bias ? data_of<T>(b) : nullptr,
                          data_of<T>(output), rows, columns, depth, gpu.stream));
  return output;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(reach_cutlass, m) {
  m.def("linear_gelu(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(reach_cutlass, CUDA, m) {
  m.impl("linear_gelu", TORCH_BOX(&linear_gelu));
}

}  // namespace cutlass_linear

// aten::neg, overridden: which inputs are ours, and who serves the others.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "overrides.h"

#include "neg.h"

namespace opbook {

namespace {

struct Cpu {
  static constexpr const char* kKey = "CPU";

  explicit Cpu(const Tensor&) {}

  template <typename T>
  void neg(const T* input, T* output, int64_t count) const {
    constexpr int64_t kElementsPerTask = 32768;  // at::internal::GRAIN_SIZE
    torch::stable::parallel_for(0, count, kElementsPerTask,
                                [&](int64_t begin, int64_t end) {
                                  compute_range<Negative>(input, output, begin, end);
                                });
  }
};

#if defined(USE_CUDA)
struct Gpu : GpuOf {
  static constexpr const char* kKey = "CUDA";

  using GpuOf::GpuOf;

  template <typename T>
  void neg(const T* input, T* output, int64_t count) const {
    check_launch("aten::neg", launch_neg(input, output, count, stream));
  }
};
#endif

// [layout]
// Whether eager gives the result the strides of this input, for certain: it is
// contiguous, or its elements fill a stretch of memory in another order of dimensions.
// With a dimension of size 0 or 1 the strides do not tell that order, so eager's kernel
// decides.
bool keeps_strides(const Tensor& input) {
  int64_t expected = 1;
  bool contiguous = true, ambiguous = false;
  std::vector<std::pair<int64_t, int64_t>> steps;
  for (int64_t d = input.dim() - 1; d >= 0; --d) {
    const int64_t size = input.size(d), stride = input.stride(d);
    contiguous = contiguous && stride == expected;
    ambiguous = ambiguous || size < 2;
    expected *= std::max<int64_t>(size, 1);
    steps.emplace_back(stride, size);
  }
  if (contiguous || ambiguous) return contiguous;
  std::sort(steps.begin(), steps.end());
  expected = 1;
  for (const auto& [stride, size] : steps) {
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}
// [/layout]

// [eager]
// `neg.out` is an operator of its own, whose kernel is still ATen's. It gets an empty
// tensor, and resizes it to the shape and the strides that eager's result has.
Tensor eager_neg(const Tensor& input) {
  using torch::stable::detail::from;
  const Tensor output = new_empty("aten::neg", input, {0});
  std::array<StableIValue, 2> stack{from(input), from(output)};
  try {
    call_aten("aten::neg", "out", stack.data());
  } catch (const std::runtime_error&) {
    throw std::runtime_error(words_of_aten());  // eager's, for who replaces eager
  }
  return torch::stable::detail::to<Tensor>(stack[0]);
}
// [/eager]

// [dispatch]
// Negates `input` as elements of T; a complex number is two of them.
template <typename T, typename Device>
Tensor neg_as(const Tensor& input, int64_t per_element = 1) {
  log_call("aten::neg", Device::kKey, input);
  const Device device(input);
  Tensor output = empty_like("aten::neg", input);
  device.neg(data_of<const T>(input), data_of<T>(output), input.numel() * per_element);
  return output;
}

constexpr const char* kNoBool =
    "Negation, the `-` operator, on a bool tensor is not supported. "
    "If you are trying to invert a mask, use the `~` or `logical_not()` operator "
    "instead.";

template <typename Device>
Tensor neg(const Tensor& input) {
  // Eager's words, which PyTorch before 2.13 would not hand through.
  if (input.scalar_type() == ScalarType::Bool) throw std::runtime_error(kNoBool);
  if (keeps_strides(input)) {
    switch (input.scalar_type()) {
      case ScalarType::Byte:
      case ScalarType::Char:
        return neg_as<uint8_t, Device>(input);
      case ScalarType::Short:
        return neg_as<uint16_t, Device>(input);
      case ScalarType::Int:
        return neg_as<uint32_t, Device>(input);
      case ScalarType::Long:
        return neg_as<uint64_t, Device>(input);
      case ScalarType::Half:
        return neg_as<c10::Half, Device>(input);
      case ScalarType::BFloat16:
        return neg_as<c10::BFloat16, Device>(input);
      case ScalarType::Float:
        return neg_as<float, Device>(input);
      case ScalarType::Double:
        return neg_as<double, Device>(input);
      case ScalarType::ComplexHalf:
        return neg_as<c10::Half, Device>(input, 2);
      case ScalarType::ComplexFloat:
        return neg_as<float, Device>(input, 2);
      case ScalarType::ComplexDouble:
        return neg_as<double, Device>(input, 2);
      default:
        break;
    }
  }
  log_call("aten::neg", Device::kKey, input, " by eager");
  return eager_neg(input);
}
// [/dispatch]

}  // namespace

// [register]
STABLE_TORCH_LIBRARY_IMPL(aten, CPU, m) {
  if (is_override_enabled("neg")) m.impl("neg", TORCH_BOX(&neg<Cpu>));
}

#if defined(USE_CUDA)
STABLE_TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  if (is_override_enabled("neg")) m.impl("neg", TORCH_BOX(&neg<Gpu>));
}
#endif
// [/register]

}  // namespace opbook

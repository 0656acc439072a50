// neg: output = -input, element by element, in place of ATen's kernel.
#pragma once

#include <type_traits>

#include "../elementwise.h"

namespace opbook {

// [math]
// Integers come as unsigned ones of their width. The bits of the result are the same,
// and the smallest integer, which has no negative, wraps as in eager; signed, it would
// be an overflow, which C++ leaves undefined.
struct Negative {
  template <typename T>
  OPBOOK_HOST_DEVICE T operator()(T value) const {
    if constexpr (std::is_integral_v<T>) {
      static_assert(std::is_unsigned_v<T>);
      return static_cast<T>(0 - value);
    } else if constexpr (sizeof(T) == 2) {
      value.x ^= 0x8000;  // fp16 and bf16: the sign is the highest bit
      return value;
    } else {
      return -value;
    }
  }
};
// [/math]

// Negates `count` elements of device memory. Returns null, or the runtime's words for a
// launch error.
template <typename T>
const char* launch_neg(const T* input, T* output, int64_t count, void* stream);

}  // namespace opbook

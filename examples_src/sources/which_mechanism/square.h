#pragma once

#include <cstdint>

// The kernel, which knows of no framework.
inline void square_values(const float* input, float* output, int64_t count) {
  for (int64_t i = 0; i < count; ++i) output[i] = input[i] * input[i];
}

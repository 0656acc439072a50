// The work that all three bindings do: output = input * factor.
#pragma once

#include <cstdint>

inline void scale_values(const float* input, float* output, int64_t count,
                         float factor) {
  for (int64_t i = 0; i < count; ++i) output[i] = input[i] * factor;
}

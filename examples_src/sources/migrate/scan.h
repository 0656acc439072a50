// The computation of all three bindings: y[t] = decay * y[t - 1] + x[t].
#pragma once
#include <cstdint>

template <typename T>
void scan_row(const T* x, T* y, int64_t length, float decay) {
  float state = 0;
  for (int64_t t = 0; t < length; ++t) {
    state = decay * state + static_cast<float>(x[t]);
    y[t] = static_cast<T>(state);
  }
}

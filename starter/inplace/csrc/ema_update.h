// ema_update_: decay * state + (1 - decay) * x, written over state.
#pragma once

#include "inplace.h"

namespace starter {

// [math] one element, on every device; take is 1 - decay
template <typename T>
STARTER_HOST_DEVICE T ema_update_value(T state, T x, compute_t<T> decay,
                                       compute_t<T> take) {
  return static_cast<T>(decay * static_cast<compute_t<T>>(state) +
                        take * static_cast<compute_t<T>>(x));
}
// [/math]

// The GPU launcher, for `count` > 0 elements of device memory and a CUDA or HIP stream.
// It returns null, or why the launch failed.
template <typename T>
const char* launch_ema_update(T* state, const T* x, const Places& places, int64_t count,
                              double decay, void* stream);

}  // namespace starter

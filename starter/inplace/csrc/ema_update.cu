// The GPU kernels of ema_update_ and their launcher, which know nothing of tensors.
#include "ema_update.h"

namespace starter {

constexpr int kThreads = 256;

// A thread writes N neighbouring elements, or those that are left.
template <int N, typename T>
__global__ void ema_update_kernel(T* state, const T* x, int64_t count,
                                  compute_t<T> decay, compute_t<T> take) {
  const int64_t first = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) * N;
  if (first >= count) return;
  auto s = load<N>(View<T>{state, 1, 1}, first, count);
  const auto v = load<N>(View<T>{x, 1, 1}, first, count);
  for (int i = 0; i < N; ++i) {
    s.data[i] = ema_update_value(s.data[i], v.data[i], decay, take);
  }
  store(state, first, count, s);
}

// A thread writes one element, wherever it is.
template <typename T>
__global__ void ema_update_strided_kernel(T* state, const T* x, Places places,
                                          int64_t count, compute_t<T> decay,
                                          compute_t<T> take) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= count) return;
  const auto [to, from] = places.at(i);
  state[to] = ema_update_value(state[to], x[from], decay, take);
}

template <typename T>
const char* launch_ema_update(T* state, const T* x, const Places& places, int64_t count,
                              double decay, void* stream) {
  constexpr int kWidth = kVectorBytes / sizeof(T);
  const auto on = static_cast<cudaStream_t>(stream);
  const bool wide = places.is_contiguous() && is_aligned(View<T>{state, 1, 1}) &&
                    is_aligned(View<T>{x, 1, 1});
  const int64_t blocks = blocks_for(count, kThreads * (wide ? kWidth : 1));
  if (wide) {
    ema_update_kernel<kWidth, T>
        <<<blocks, kThreads, 0, on>>>(state, x, count, decay, 1 - decay);
  } else {
    ema_update_strided_kernel<T>
        <<<blocks, kThreads, 0, on>>>(state, x, places, count, decay, 1 - decay);
  }
  return launch_error();
}

// Compiles a launcher for the types that ema_update_op.cpp calls it with.
template decltype(launch_ema_update<c10::Half>) launch_ema_update<c10::Half>;
template decltype(launch_ema_update<c10::BFloat16>) launch_ema_update<c10::BFloat16>;
template decltype(launch_ema_update<float>) launch_ema_update<float>;
template decltype(launch_ema_update<double>) launch_ema_update<double>;

}  // namespace starter

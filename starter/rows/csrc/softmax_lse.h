// softmax_lse: softmax(scale * scores) of each row and the logarithm of its
// denominator, the gradient, and the GPU kernels that compute them.
#pragma once

#include <limits>

#include "rows.h"

namespace starter {

// What the kernels and the launchers get. Outputs are contiguous and aligned, as all
// that PyTorch allocates. There is one row or more.
template <typename T>
struct softmax_lse_args {
  Rows<T> scores;
  Rows<bool> mask;
  T* probs;
  compute_t<T>* lse;
  int64_t rows, columns;
  compute_t<T> scale;
};

// The gradients that arrive may be null.
template <typename T>
struct softmax_lse_backward_args {
  Rows<T> grad_probs, probs;
  Rows<compute_t<T>> grad_lse;
  T* grad_scores;
  int64_t rows, columns;
  compute_t<T> scale;
};

// [math] What is known of a part of a row: `largest`, which is finite whatever the
// scores are, and the sum of exp(score - largest).
template <typename C>
struct softmax_lse_state {
  C largest, sum;
};

template <typename C>
STARTER_HOST_DEVICE softmax_lse_state<C> softmax_lse_merge(softmax_lse_state<C> a,
                                                           softmax_lse_state<C> b) {
  const C largest = a.largest > b.largest ? a.largest : b.largest;
  return {largest, a.sum * fast_exp(a.largest - largest) +
                       b.sum * fast_exp(b.largest - largest)};
}

// N scores, those that are masked as minus infinity.
template <int N, typename T>
STARTER_HOST_DEVICE Together<compute_t<T>, N> softmax_lse_read(
    const softmax_lse_args<T>& args, const T* row, const bool* mask, int64_t column) {
  const auto scores = read<N>(row, column, args.scores.column_stride);
  Together<compute_t<T>, N> x;
  for (int i = 0; i < N; ++i) x.values[i] = compute_t<T>(scores.values[i]) * args.scale;
  if (mask == nullptr) return x;
  const auto kept = read<N>(mask, column, args.mask.column_stride);
  constexpr auto kMasked = -std::numeric_limits<compute_t<T>>::infinity();
  for (int i = 0; i < N; ++i) x.values[i] = kept.values[i] ? x.values[i] : kMasked;
  return x;
}

template <int N, typename T>
STARTER_HOST_DEVICE softmax_lse_state<compute_t<T>> softmax_lse_part(
    const softmax_lse_args<T>& args, int64_t row, Share share) {
  using C = compute_t<T>;
  const T* scores = args.scores.at(row);
  const bool* mask = args.mask.at(row);
  softmax_lse_state<C> state = {std::numeric_limits<C>::lowest(), 0};
  for (int64_t c = share.begin; c < share.end; c += share.step) {
    const auto x = softmax_lse_read<N>(args, scores, mask, c);
    C largest = state.largest;
    for (const C value : x.values) largest = value > largest ? value : largest;
    // With infinity or NaN among the scores, the sum will be infinite or NaN.
    constexpr C kMost = std::numeric_limits<C>::max();
    if (largest > kMost) largest = kMost;
    if (largest > state.largest) state.sum *= fast_exp(state.largest - largest);
    for (const C value : x.values) state.sum += fast_exp(value - largest);
    state.largest = largest;
  }
  return state;
}

// The second time that scores are read: on a GPU, they are still in the cache.
template <int N, typename T>
STARTER_HOST_DEVICE void softmax_lse_write(const softmax_lse_args<T>& args, int64_t row,
                                           Share share,
                                           softmax_lse_state<compute_t<T>> state) {
  using C = compute_t<T>;
  const T* scores = args.scores.at(row);
  const bool* mask = args.mask.at(row);
  // The sum is 0 if all is masked. If it is infinite, NaN is right: so are inf - inf.
  const C factor = state.sum == 0 ? 0 : (1 + (state.sum - state.sum)) / state.sum;
  for (int64_t c = share.begin; c < share.end; c += share.step) {
    const auto x = softmax_lse_read<N>(args, scores, mask, c);
    Together<T, N> probs;
    for (int i = 0; i < N; ++i) {
      probs.values[i] = static_cast<T>(fast_exp(x.values[i] - state.largest) * factor);
    }
    *reinterpret_cast<Together<T, N>*>(args.probs + row * args.columns + c) = probs;
  }
  if (share.begin == 0) args.lse[row] = state.largest + std::log(state.sum);
}

// A probability of 0 passes nothing on, even of an infinite gradient: masked rows get
// 0.
template <typename C>
STARTER_HOST_DEVICE C softmax_lse_product(C grad, C prob) {
  return prob == 0 ? 0 : grad * prob;
}

template <int N, typename T>
STARTER_HOST_DEVICE compute_t<T> softmax_lse_dot(
    const softmax_lse_backward_args<T>& args, int64_t row, Share share) {
  using C = compute_t<T>;
  C dot = 0;
  if (!args.grad_probs.data) return dot;
  const T *grad = args.grad_probs.at(row), *probs = args.probs.at(row);
  for (int64_t c = share.begin; c < share.end; c += share.step) {
    const auto d = read<N>(grad, c, args.grad_probs.column_stride);
    const auto p = read<N>(probs, c, args.probs.column_stride);
    for (int i = 0; i < N; ++i) dot += softmax_lse_product<C>(d.values[i], p.values[i]);
  }
  return dot;
}

template <int N, typename T>
STARTER_HOST_DEVICE void softmax_lse_write_gradient(
    const softmax_lse_backward_args<T>& args, int64_t row, Share share,
    compute_t<T> dot) {
  using C = compute_t<T>;
  const T *grad = args.grad_probs.at(row), *probs = args.probs.at(row);
  for (int64_t c = share.begin; c < share.end; c += share.step) {
    const C of_lse = args.grad_lse.data ? *args.grad_lse.at(row) : 0;
    const auto p = read<N>(probs, c, args.probs.column_stride);
    Together<T, N> d = {}, result;
    if (args.grad_probs.data) d = read<N>(grad, c, args.grad_probs.column_stride);
    for (int i = 0; i < N; ++i) {
      const C arrived = static_cast<C>(d.values[i]) - dot + of_lse;
      const C passed = softmax_lse_product<C>(arrived, p.values[i]);
      result.values[i] = static_cast<T>(args.scale * passed);
    }
    T* place = args.grad_scores + row * args.columns + c;
    *reinterpret_cast<Together<T, N>*>(place) = result;
  }
}
// [/math]

// The GPU launchers take a CUDA or HIP stream, and return null or why they failed.
template <typename T>
const char* launch_softmax_lse(const softmax_lse_args<T>& args, void* stream);
template <typename T>
const char* launch_softmax_lse_backward(const softmax_lse_backward_args<T>& args,
                                        void* stream);

}  // namespace starter

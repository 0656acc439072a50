// softmax_lse: softmax(scale * scores) of each row and the logarithm of its
// denominator, and the gradient: what a thread of a CPU or GPU computes of a row.
#pragma once

#include <limits>

#include "rows.h"

namespace starter {

// [math] Both get tensors of any strides; results are contiguous and aligned, as all
// that PyTorch allocates. `part` computes what is known of a share of a row, `merge`
// joins two such, and `write` writes results, from what is known of the whole row.
template <typename T>
struct softmax_lse_args {
  using Element = T;
  using C = compute_t<T>;
  Rows<T> scores;
  Rows<bool> mask;
  T* probs;
  C* lse;
  int64_t rows, columns;
  C scale;

  template <int N>
  bool is_aligned() const {
    return scores.template is_aligned<N>() && mask.template is_aligned<N>();
  }

  // `largest` is finite whatever the scores are; `sum` is that of exp(score - largest).
  struct State {
    C largest, sum;
  };

  static STARTER_HOST_DEVICE State merge(State a, State b) {
    const C largest = a.largest > b.largest ? a.largest : b.largest;
    return {largest, a.sum * fast_exp(a.largest - largest) +
                         b.sum * fast_exp(b.largest - largest)};
  }

  // N scores, those that are masked as minus infinity.
  template <int N>
  STARTER_HOST_DEVICE Together<C, N> load(const T* row, const bool* kept,
                                          int64_t column) const {
    const auto score = read<N>(row, column, scores.column_stride);
    Together<C, N> x;
    for (int i = 0; i < N; ++i) x.values[i] = static_cast<C>(score.values[i]) * scale;
    if (kept == nullptr) return x;
    const auto keep = read<N>(kept, column, mask.column_stride);
    constexpr C kMasked = -std::numeric_limits<C>::infinity();
    for (int i = 0; i < N; ++i) x.values[i] = keep.values[i] ? x.values[i] : kMasked;
    return x;
  }

  // What is known of a share of a row.
  template <int N>
  STARTER_HOST_DEVICE State part(int64_t row, Share share) const {
    const T* score = scores.at(row);
    const bool* kept = mask.at(row);
    State state = {std::numeric_limits<C>::lowest(), 0};
    for (int64_t c = share.begin; c < share.end; c += share.step) {
      const auto x = load<N>(score, kept, c);
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
  template <int N>
  STARTER_HOST_DEVICE void write(int64_t row, Share share, State state) const {
    const T* score = scores.at(row);
    const bool* kept = mask.at(row);
    // The sum is 0 if all is masked. If it is infinite, NaN is right: so are inf - inf.
    const C factor = state.sum == 0 ? 0 : (1 + (state.sum - state.sum)) / state.sum;
    for (int64_t c = share.begin; c < share.end; c += share.step) {
      auto x = load<N>(score, kept, c);
      for (C& value : x.values) value = fast_exp(value - state.largest) * factor;
      starter::write(probs + row * columns + c, x);
    }
    if (share.begin == 0) lse[row] = state.largest + std::log(state.sum);
  }
};

// The gradients that arrive may be null.
template <typename T>
struct softmax_lse_backward_args {
  using Element = T;
  using C = compute_t<T>;
  Rows<T> grad_probs, probs;
  Rows<C> grad_lse;
  T* grad_scores;
  int64_t rows, columns;
  C scale;

  template <int N>
  bool is_aligned() const {
    return grad_probs.template is_aligned<N>() && probs.template is_aligned<N>();
  }

  static STARTER_HOST_DEVICE C merge(C a, C b) { return a + b; }

  // A probability of 0 passes nothing on, even of an infinite gradient: masked rows
  // get 0.
  static STARTER_HOST_DEVICE C product(C grad, C prob) {
    return prob == 0 ? 0 : grad * prob;
  }

  template <int N>
  STARTER_HOST_DEVICE C part(int64_t row, Share share) const {
    C dot = 0;
    if (!grad_probs.data) return dot;
    const T *grad = grad_probs.at(row), *prob = probs.at(row);
    for (int64_t c = share.begin; c < share.end; c += share.step) {
      const auto d = read<N>(grad, c, grad_probs.column_stride);
      const auto p = read<N>(prob, c, probs.column_stride);
      for (int i = 0; i < N; ++i) dot += product(d.values[i], p.values[i]);
    }
    return dot;
  }

  template <int N>
  STARTER_HOST_DEVICE void write(int64_t row, Share share, C dot) const {
    const T *grad = grad_probs.at(row), *prob = probs.at(row);
    for (int64_t c = share.begin; c < share.end; c += share.step) {
      // Loaded in front of the loop, it would hold the loads of the loop up.
      const C of_lse = grad_lse.data ? *grad_lse.at(row) : 0;
      const auto p = read<N>(prob, c, probs.column_stride);
      Together<T, N> d = {};
      if (grad_probs.data) d = read<N>(grad, c, grad_probs.column_stride);
      Together<C, N> result;
      for (int i = 0; i < N; ++i) {
        result.values[i] = scale * product(d.values[i] - dot + of_lse, p.values[i]);
      }
      starter::write(grad_scores + row * columns + c, result);
    }
  }
};
// [/math]

}  // namespace starter

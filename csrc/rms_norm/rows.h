// What operators on rows share on the host: checks, tensors as matrices, the CPU kernel
// of one row, and the weight as a typed pointer.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "../tensors.h"
#include "rms_norm.h"

namespace opbook {

inline void check_input(const char* op, const Tensor& input,
                        const std::optional<Tensor>& weight) {
  check_floating(op, input);
  check_not_scalar(op, input);
  if (!weight) return;
  OPBOOK_CHECK(weight->dim() == 1 && weight->size(0) == input.size(-1), op,
               "expected weight to have the shape of input's last dimension, [",
               input.size(-1), "], but got ", shape_of(*weight));
  check_device(op, "weight", *weight, input);
  OPBOOK_CHECK(!is_float8(weight->scalar_type()), op,
               "weight of an 8-bit floating type can't be promoted; got ",
               weight->scalar_type());
}

// [rows]
// The distance between rows when all leading dimensions collapse into one.
inline std::optional<int64_t> row_stride_of(const Tensor& tensor) {
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  const int64_t last = tensor.dim() - 1;
  if (sizes[last] != 1 && strides[last] != 1) return std::nullopt;
  std::optional<int64_t> row_stride;
  int64_t next_stride = 0;
  for (int64_t d = last - 1; d >= 0; --d) {
    if (sizes[d] == 1) continue;
    if (!row_stride) {
      row_stride = strides[d];
    } else if (strides[d] != next_stride) {
      return std::nullopt;
    }
    next_stride = strides[d] * sizes[d];
  }
  return row_stride.value_or(sizes[last]);
}

// The tensor itself if a View can describe it, or else a copy.
inline Tensor viewable(const char* op, const Tensor& tensor) {
  return row_stride_of(tensor) ? tensor : contiguous(op, tensor);
}

template <typename T>
View<T> view_of(const Tensor& viewable) {
  return {data_of<T>(viewable), *row_stride_of(viewable)};
}
// [/rows]

// Sixteen partial sums: the compiler keeps them in vector registers, and adding rows in
// sixteen strands loses less precision than one long chain.
template <typename C, typename Term>
C sum_in_strands(int64_t count, const Term& term) {
  constexpr int kStrands = 16;
  std::array<C, kStrands> strands{};
  int64_t i = 0;
  for (; i + kStrands <= count; i += kStrands) {
    for (int s = 0; s < kStrands; ++s) strands[s] += term(i + s);
  }
  for (; i < count; ++i) strands[0] += term(i);
  C sum = 0;
  for (const C strand : strands) sum += strand;
  return sum;
}

template <typename T, typename W>
compute_t<T> rms_norm_row(const T* input, const W* weight, T* output, int64_t hidden,
                          compute_t<T> eps) {
  using C = compute_t<T>;
  const C sum_of_squares = sum_in_strands<C>(hidden, [&](int64_t i) {
    const C value = static_cast<C>(input[i]);
    return value * value;
  });
  const C rrms = reciprocal_rms(sum_of_squares / static_cast<C>(hidden), eps);
  if (weight == nullptr) {
    for (int64_t i = 0; i < hidden; ++i) {
      output[i] = static_cast<T>(static_cast<C>(input[i]) * rrms);
    }
  } else {
    for (int64_t i = 0; i < hidden; ++i) {
      const C normalized = static_cast<C>(input[i]) * rrms;
      output[i] = static_cast<T>(normalized * static_cast<C>(weight[i]));
    }
  }
  return rrms;
}

// Shares rows out to PyTorch's threads. The grain is ATen's: below 32768 elements,
// waking a second thread costs more than it saves.
template <typename Body>
void for_each_row(int64_t rows, int64_t hidden, const Body& body) {
  const int64_t rows_per_task = std::max<int64_t>(1, 32768 / hidden);
  torch::stable::parallel_for(0, rows, rows_per_task, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

inline ScalarType compute_dtype(const Tensor& input) {
  return input.scalar_type() == ScalarType::Double ? ScalarType::Double
                                                   : ScalarType::Float;
}

// Room for the reciprocal RMS of each row.
inline Tensor new_rrms(const char* op, const Tensor& input) {
  const auto sizes = input.sizes();
  const Sizes rows(sizes.data(), sizes.size() - 1);
  const auto dtype = compute_dtype(input);
  return input.numel() == 0  // no kernel runs that would write it
             ? new_zeros(op, input, rows, dtype)
             : new_empty(op, input, rows, dtype);
}

// Calls `run` with a zero of input's C++ type and a typed pointer to the weight: null,
// of that type, or, of any other dtype, converted to the type to compute in.
template <typename Run>
void with_types_of(const char* op, const Tensor& input,
                   const std::optional<Tensor>& weight, const Run& run) {
  with_type_of(op, input, [&](auto zero) {
    using T = decltype(zero);
    if (!weight) return run(zero, static_cast<const T*>(nullptr));
    if (weight->scalar_type() == input.scalar_type()) {
      const Tensor same = contiguous(op, *weight);
      return run(zero, data_of<const T>(same));
    }
    const Tensor converted = contiguous(op, to(op, *weight, compute_dtype(input)));
    run(zero, data_of<const compute_t<T>>(converted));
  });
}

// Calls `run` with what a call works on, unless that is nothing. `rrms` may be null,
// and Views can describe input and output.
template <typename Run>
void with_args_of(const char* op, const Tensor& input,
                  const std::optional<Tensor>& weight, std::optional<double> eps,
                  const Tensor& output, const Tensor* rrms, const Run& run) {
  if (input.numel() == 0) return;
  const int64_t hidden = input.size(-1);
  with_types_of(op, input, weight, [&]<typename T, typename W>(T, const W* weight) {
    using C = compute_t<T>;
    run(rms_norm_args<T, W>{
        .input = view_of<const T>(input),
        .weight = weight,
        .output = view_of<T>(output),
        .rrms = rrms ? data_of<C>(*rrms) : nullptr,
        .rows = input.numel() / hidden,
        .hidden = hidden,
        .eps = static_cast<C>(eps.value_or(std::numeric_limits<C>::epsilon()))});
  });
}

}  // namespace opbook

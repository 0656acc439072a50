// What operators on rows share on the host: checks, tensors as matrices, the CPU kernel
// of one row, and the weight as a typed pointer.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "../tensors.h"
#include "rms_norm.h"

namespace opbook {

inline void check_input(const char* op, const Tensor& input,
                        const std::optional<Tensor>& weight) {
  check_floating(op, input);
  OPBOOK_CHECK(input.dim() >= 1, op,
               "expected input to have at least 1 dimension, but got shape ",
               shape_of(input));
  if (!weight) return;
  OPBOOK_CHECK(weight->dim() == 1 && weight->size(0) == input.size(-1), op,
               "expected weight to have the shape of input's last dimension, [",
               input.size(-1), "], but got ", shape_of(*weight));
  check_same_device(op, "weight", *weight, input);
  OPBOOK_CHECK(!is_float8(weight->scalar_type()), op,
               "weight of an 8-bit floating type can't be promoted; got ",
               weight->scalar_type());
}

inline void check_like_input(const char* op, const char* name, const Tensor& tensor,
                             const Tensor& input) {
  OPBOOK_CHECK(tensor.sizes().equals(input.sizes()) &&
                   tensor.scalar_type() == input.scalar_type(),
               op, "expected ", name, " with input's shape ", shape_of(input),
               " and dtype ", input.scalar_type(), ", but got ", shape_of(tensor),
               " and ", tensor.scalar_type());
  check_same_device(op, name, tensor, input);
}

// [rows]
// A tensor as a matrix: rows of the last dimension, `stride` elements apart.
struct Rows {
  Tensor tensor;
  int64_t stride;
};

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

inline Rows rows_of(const char* op, const Tensor& tensor) {
  if (const auto stride = row_stride_of(tensor)) return {tensor, *stride};
  return {contiguous(op, tensor), tensor.size(-1)};
}
// [/rows]

// Sixteen partial sums: the compiler keeps them in vector registers, and adding rows in
// sixteen strands loses less precision than one long chain.
template <typename acc_t, typename Term>
acc_t sum_in_strands(int64_t count, const Term& term) {
  constexpr int kStrands = 16;
  std::array<acc_t, kStrands> strands{};
  int64_t i = 0;
  for (; i + kStrands <= count; i += kStrands) {
    for (int s = 0; s < kStrands; ++s) strands[s] += term(i + s);
  }
  for (; i < count; ++i) strands[0] += term(i);
  acc_t sum = 0;
  for (const acc_t strand : strands) sum += strand;
  return sum;
}

template <typename scalar_t, typename weight_t>
accumulate_t<scalar_t> rms_norm_row(const scalar_t* input, const weight_t* weight,
                                    scalar_t* output, int64_t hidden,
                                    accumulate_t<scalar_t> eps) {
  using acc_t = accumulate_t<scalar_t>;
  const acc_t sum_of_squares = sum_in_strands<acc_t>(hidden, [&](int64_t i) {
    const acc_t value = static_cast<acc_t>(input[i]);
    return value * value;
  });
  const acc_t rrms = reciprocal_rms(sum_of_squares / static_cast<acc_t>(hidden), eps);
  if (weight == nullptr) {
    for (int64_t i = 0; i < hidden; ++i) {
      output[i] = static_cast<scalar_t>(static_cast<acc_t>(input[i]) * rrms);
    }
  } else {
    for (int64_t i = 0; i < hidden; ++i) {
      const acc_t normalized = static_cast<acc_t>(input[i]) * rrms;
      output[i] = static_cast<scalar_t>(normalized * static_cast<acc_t>(weight[i]));
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

inline ScalarType accumulate_dtype(const Tensor& input) {
  return input.scalar_type() == ScalarType::Double ? ScalarType::Double
                                                   : ScalarType::Float;
}

// Room for the reciprocal RMS of each row.
inline Tensor new_rrms(const char* op, const Tensor& input) {
  const auto sizes = input.sizes();
  const Sizes rows(sizes.data(), sizes.size() - 1);
  const auto dtype = accumulate_dtype(input);
  return input.numel() == 0  // no kernel runs that would write it
             ? new_zeros(op, input, rows, dtype)
             : new_empty(op, input, rows, dtype);
}

// Calls `function` with a typed pointer to the weight: null, the input's type, or, for
// any other dtype, converted to the type that sums run in.
template <typename scalar_t, typename Function>
void with_weight(const char* op, const std::optional<Tensor>& weight,
                 const Tensor& input, const Function& function) {
  if (!weight) return function(static_cast<const scalar_t*>(nullptr));
  if (weight->scalar_type() == input.scalar_type()) {
    const Tensor same = contiguous(op, *weight);
    return function(data_of<scalar_t>(same));
  }
  const Tensor converted = contiguous(op, to(op, *weight, accumulate_dtype(input)));
  function(data_of<accumulate_t<scalar_t>>(converted));
}

}  // namespace opbook

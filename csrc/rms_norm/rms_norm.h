// RMSNorm: output = input / sqrt(mean(input^2) + eps) * weight, over the last dimension
// (Zhang and Sennrich, "Root Mean Square Layer Normalization", arXiv:1910.07467, eq.
// 4).
#pragma once

#include <cmath>

#include "../portable.h"

namespace opbook {

// [math] the formula, once, for every device
template <typename acc_t>
OPBOOK_HOST_DEVICE inline acc_t reciprocal_rms(acc_t sum_of_squares, int64_t hidden,
                                               acc_t eps) {
  return acc_t(1) / std::sqrt(sum_of_squares / static_cast<acc_t>(hidden) + eps);
}
// [/math]

// Gradient of the formula for one element, given the row's reciprocal_rms and
// mean(grad * weight * input): differentiate x * rrms, whose rrms depends on every x.
template <typename acc_t>
OPBOOK_HOST_DEVICE inline acc_t input_gradient(acc_t weighted_grad, acc_t input,
                                               acc_t rrms, acc_t mean_product) {
  return rrms * (weighted_grad - input * rrms * rrms * mean_product);
}

// [launcher]
// All pointers are device memory, `stream` is a cudaStream_t or hipStream_t. Row i of a
// matrix begins i * stride elements after the first. `weight` may be null and holds
// scalar_t or accumulate_t<scalar_t>. Each returns null, or the runtime's words for a
// launch error.

// Normalizes `rows` rows of `hidden` elements. `output` may be `input`. `rrms` receives
// one value a row, unless it is null.
template <typename scalar_t, typename weight_t>
const char* launch_rms_norm(const scalar_t* input, int64_t input_stride,
                            const weight_t* weight, scalar_t* output,
                            int64_t output_stride, accumulate_t<scalar_t>* rrms,
                            int64_t rows, int64_t hidden, double eps, void* stream);

// The gradient of the input; `grad_input` is contiguous.
template <typename scalar_t, typename weight_t>
const char* launch_rms_norm_input_gradient(const scalar_t* grad, int64_t grad_stride,
                                           const scalar_t* input, int64_t input_stride,
                                           const weight_t* weight,
                                           const accumulate_t<scalar_t>* rrms,
                                           scalar_t* grad_input, int64_t rows,
                                           int64_t hidden, void* stream);

// The gradient of the weight, summed over the rows in a fixed order. `partial` is
// scratch of weight_gradient_chunks(rows) * hidden elements.
template <typename scalar_t>
const char* launch_rms_norm_weight_gradient(const scalar_t* grad, int64_t grad_stride,
                                            const scalar_t* input, int64_t input_stride,
                                            const accumulate_t<scalar_t>* rrms,
                                            accumulate_t<scalar_t>* partial,
                                            accumulate_t<scalar_t>* grad_weight,
                                            int64_t rows, int64_t hidden, void* stream);
// [/launcher]

// The weight's gradient is summed in this many strands, on every device: the order of
// the additions depends on the number of rows alone, so two runs agree to the bit.
inline int64_t weight_gradient_chunks(int64_t rows) { return rows < 128 ? rows : 128; }

// First row of a chunk; chunk `chunks` begins behind the last row.
OPBOOK_HOST_DEVICE inline int64_t first_row(int64_t chunk, int64_t chunks,
                                            int64_t rows) {
  return rows / chunks * chunk + (chunk < rows % chunks ? chunk : rows % chunks);
}

#if defined(OPBOOK_GPU_COMPILER)

// [row] what a thread does with one vector of a row
template <typename scalar_t, int kWidth>
__device__ inline accumulate_t<scalar_t> squares(Vector<scalar_t, kWidth> x) {
  using acc_t = accumulate_t<scalar_t>;
  acc_t sum_of_squares = 0;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const acc_t value = static_cast<acc_t>(x.data[j]);
    sum_of_squares += value * value;
  }
  return sum_of_squares;
}

template <typename scalar_t, typename weight_t, int kWidth>
__device__ inline Vector<scalar_t, kWidth> scaled(
    Vector<scalar_t, kWidth> x, accumulate_t<scalar_t> scale,
    const Vector<weight_t, kWidth>* weight, int64_t i) {
  using acc_t = accumulate_t<scalar_t>;
  Vector<weight_t, kWidth> weights;
  if (weight != nullptr) weights = weight[i];
  Vector<scalar_t, kWidth> stored;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    acc_t value = static_cast<acc_t>(x.data[j]) * scale;
    if (weight != nullptr) value *= static_cast<acc_t>(weights.data[j]);
    stored.data[j] = static_cast<scalar_t>(value);
  }
  return stored;
}
// [/row]

// [kernel] one block normalizes one row
constexpr int kKept = 4;  // vectors in a thread's registers: 64 bytes on their way

// With kKeep, kKept vectors a thread are the whole row, which is read once. A longer
// row is read twice, the second time from cache.
template <typename scalar_t, typename weight_t, int kWidth, bool kKeep>
__global__ void __launch_bounds__(kMaxThreads, 1)
    rms_norm_kernel(const scalar_t* input, int64_t input_stride,
                    const weight_t* __restrict__ weight, scalar_t* output,
                    int64_t output_stride, accumulate_t<scalar_t>* __restrict__ rrms,
                    int64_t rows, int64_t hidden, accumulate_t<scalar_t> eps) {
  using acc_t = accumulate_t<scalar_t>;
  using Input = Vector<scalar_t, kWidth>;
  using Weight = Vector<weight_t, kWidth>;

  const int64_t row = blockIdx.x + static_cast<int64_t>(gridDim.x) * blockIdx.y;
  if (row >= rows) return;  // true for the whole block, so no thread misses a barrier
  const auto* x = reinterpret_cast<const Input*>(input + row * input_stride);
  const auto* w = reinterpret_cast<const Weight*>(weight);
  auto* y = reinterpret_cast<Input*>(output + row * output_stride);
  const int64_t vectors = hidden / kWidth;

  Input kept[kKept];
  acc_t sum_of_squares = 0;
  if constexpr (kKeep) {
#pragma unroll
    for (int k = 0; k < kKept; ++k) {  // every load is on its way before the first sum
      const int i = threadIdx.x + k * blockDim.x;
      if (i < vectors) kept[k] = x[i];
    }
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      if (threadIdx.x + k * blockDim.x < vectors) sum_of_squares += squares(kept[k]);
    }
  } else {
    for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
      sum_of_squares += squares(x[i]);
    }
  }
  const acc_t scale = reciprocal_rms(block_sum(sum_of_squares), hidden, eps);
  if (rrms != nullptr && threadIdx.x == 0) rrms[row] = scale;

  if constexpr (kKeep) {
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int i = threadIdx.x + k * blockDim.x;
      if (i < vectors) y[i] = scaled(kept[k], scale, w, i);
    }
  } else {
    for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
      y[i] = scaled(x[i], scale, w, i);
    }
  }
}
// [/kernel]

// [input_gradient] one block, one row, as forward
template <typename scalar_t, typename weight_t, int kWidth>
__global__ void __launch_bounds__(kMaxThreads, 1)
    rms_norm_input_gradient_kernel(const scalar_t* __restrict__ grad,
                                   int64_t grad_stride,
                                   const scalar_t* __restrict__ input,
                                   int64_t input_stride,
                                   const weight_t* __restrict__ weight,
                                   const accumulate_t<scalar_t>* __restrict__ rrms,
                                   scalar_t* __restrict__ grad_input, int64_t rows,
                                   int64_t hidden) {
  using acc_t = accumulate_t<scalar_t>;
  using Input = Vector<scalar_t, kWidth>;
  using Weight = Vector<weight_t, kWidth>;

  const int64_t row = blockIdx.x + static_cast<int64_t>(gridDim.x) * blockIdx.y;
  if (row >= rows) return;
  const auto* dy = reinterpret_cast<const Input*>(grad + row * grad_stride);
  const auto* x = reinterpret_cast<const Input*>(input + row * input_stride);
  const auto* w = reinterpret_cast<const Weight*>(weight);
  auto* dx = reinterpret_cast<Input*>(grad_input + row * hidden);
  const int64_t vectors = hidden / kWidth;

  acc_t product = 0;
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const Input grads = dy[i], inputs = x[i];
    Weight weights;
    if (weight != nullptr) weights = w[i];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      acc_t value = static_cast<acc_t>(grads.data[j]);
      if (weight != nullptr) value *= static_cast<acc_t>(weights.data[j]);
      product += value * static_cast<acc_t>(inputs.data[j]);
    }
  }
  const acc_t mean_product = block_sum(product) / static_cast<acc_t>(hidden);

  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const Input grads = dy[i], inputs = x[i];
    Weight weights;
    if (weight != nullptr) weights = w[i];
    Input stored;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      acc_t value = static_cast<acc_t>(grads.data[j]);
      if (weight != nullptr) value *= static_cast<acc_t>(weights.data[j]);
      stored.data[j] = static_cast<scalar_t>(input_gradient(
          value, static_cast<acc_t>(inputs.data[j]), rrms[row], mean_product));
    }
    dx[i] = stored;
  }
}
// [/input_gradient]

// [weight_gradient] a thread per column sums one chunk of rows; no atomics
template <typename scalar_t>
__global__ void __launch_bounds__(kMaxThreads, 1)
    rms_norm_weight_gradient_kernel(const scalar_t* __restrict__ grad,
                                    int64_t grad_stride,
                                    const scalar_t* __restrict__ input,
                                    int64_t input_stride,
                                    const accumulate_t<scalar_t>* __restrict__ rrms,
                                    accumulate_t<scalar_t>* __restrict__ partial,
                                    int64_t rows, int64_t hidden) {
  using acc_t = accumulate_t<scalar_t>;
  const int64_t column = threadIdx.x + static_cast<int64_t>(blockDim.x) * blockIdx.x;
  if (column >= hidden) return;
  const int64_t chunk = blockIdx.y, chunks = gridDim.y;
  const int64_t end = first_row(chunk + 1, chunks, rows);
  acc_t sum = 0;
  for (int64_t row = first_row(chunk, chunks, rows); row < end; ++row) {
    sum += static_cast<acc_t>(grad[row * grad_stride + column]) *
           static_cast<acc_t>(input[row * input_stride + column]) * rrms[row];
  }
  partial[chunk * hidden + column] = sum;
}

template <typename acc_t>
__global__ void __launch_bounds__(kMaxThreads, 1)
    sum_chunks_kernel(const acc_t* __restrict__ partial, acc_t* __restrict__ total,
                      int64_t chunks, int64_t hidden) {
  const int64_t column = threadIdx.x + static_cast<int64_t>(blockDim.x) * blockIdx.x;
  if (column >= hidden) return;
  acc_t sum = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    sum += partial[chunk * hidden + column];
  }
  total[column] = sum;
}
// [/weight_gradient]

#endif  // OPBOOK_GPU_COMPILER

}  // namespace opbook

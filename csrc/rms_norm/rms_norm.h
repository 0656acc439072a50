// RMSNorm: output = input / sqrt(mean(input^2) + eps) * weight, over the last dimension
// (Zhang and Sennrich, "Root Mean Square Layer Normalization", arXiv:1910.07467, eq.
// 4).
#pragma once

#include <cmath>

#include "../portable.h"
#include "../row_sum.h"

namespace opbook {

// [math] the formula, once, for every device
template <typename acc_t>
OPBOOK_HOST_DEVICE inline acc_t reciprocal_rms(acc_t mean_square, acc_t eps) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  return rsqrt(mean_square + eps);  // one instruction instead of two subroutines
#else
  return acc_t(1) / std::sqrt(mean_square + eps);
#endif
}
// [/math]

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
// [/launcher]

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

// Without a weight every element is scaled by one.
template <typename weight_t, int kWidth>
__device__ inline Vector<weight_t, kWidth> weight_at(
    const Vector<weight_t, kWidth>* weight, int64_t i) {
  if (weight != nullptr) return weight[i];
  Vector<weight_t, kWidth> ones;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) ones.data[j] = static_cast<weight_t>(1.0f);
  return ones;
}

// The same, to be kept in registers.
template <typename Weight, typename weight_t>
__device__ inline Packed<Weight> kept_weight(const weight_t* weight, int i) {
  if (weight != nullptr) return reinterpret_cast<const Packed<Weight>*>(weight)[i];
  return pack(weight_at(static_cast<const Weight*>(nullptr), i));
}

template <typename scalar_t, typename weight_t, int kWidth>
__device__ inline Vector<scalar_t, kWidth> scaled(Vector<scalar_t, kWidth> x,
                                                  accumulate_t<scalar_t> scale,
                                                  Vector<weight_t, kWidth> weight) {
  using acc_t = accumulate_t<scalar_t>;
  Vector<scalar_t, kWidth> stored;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const acc_t value = static_cast<acc_t>(x.data[j]) * scale;
    stored.data[j] = static_cast<scalar_t>(value * static_cast<acc_t>(weight.data[j]));
  }
  return stored;
}
// [/row]

// [kernel] one block normalizes one row
constexpr int kShortRow = 512;  // vectors, two a thread

// Six blocks of a short row are to fit a multiprocessor: 40 registers a thread.
constexpr int threads_at_most(int kept, bool weight_first) {
  return kept == 2 && !weight_first ? kShortRow / 2 : kMaxThreads;
}
constexpr int blocks_at_least(int kept, bool weight_first) {
  return kept == 2 && !weight_first ? 6 : 1;
}

// kKept vectors a thread are the whole row, which is read once; with kKept = 0 the row
// is read twice, the second time from cache. kWeightFirst asks for the weight before
// the sum is known: faster where few rows leave most of the GPU idle.
template <typename scalar_t, typename weight_t, int kKept, bool kWeightFirst,
          int kWidth>
__global__ void __launch_bounds__(threads_at_most(kKept, kWeightFirst),
                                  blocks_at_least(kKept, kWeightFirst))
    rms_norm_kernel(const scalar_t* input, int64_t input_stride,
                    const weight_t* __restrict__ weight, scalar_t* output,
                    int64_t output_stride, accumulate_t<scalar_t>* __restrict__ rrms,
                    int64_t rows, int64_t hidden, accumulate_t<scalar_t> inverse_hidden,
                    accumulate_t<scalar_t> eps) {
  using acc_t = accumulate_t<scalar_t>;
  using Input = Vector<scalar_t, kWidth>;
  using Weight = Vector<weight_t, kWidth>;

  const int64_t row = blockIdx.x + static_cast<int64_t>(gridDim.x) * blockIdx.y;
  if (row >= rows) return;  // true for the whole block, so no thread misses a barrier
  const scalar_t* x = input + row * input_stride;
  auto* y = reinterpret_cast<Input*>(output + row * output_stride);

  if constexpr (kKept > 0) {
    const int vectors = static_cast<int>(hidden / kWidth);
    Packed<Input> kept[kKept];
    Packed<Weight> weights[kKept];
#pragma unroll
    for (int k = 0; k < kKept; ++k) {  // every load is on its way before the first sum
      const int i = threadIdx.x + k * blockDim.x;
      if (i < vectors) kept[k] = reinterpret_cast<const Packed<Input>*>(x)[i];
      if (kWeightFirst && i < vectors) weights[k] = kept_weight<Weight>(weight, i);
    }
    acc_t sum_of_squares = 0;
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int i = threadIdx.x + k * blockDim.x;
      if (i < vectors) sum_of_squares += squares(kept[k].unpack());
    }
    const acc_t scale = reciprocal_rms(block_sum(sum_of_squares) * inverse_hidden, eps);
    if (rrms != nullptr && threadIdx.x == 0) rrms[row] = scale;
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int i = threadIdx.x + k * blockDim.x;
      if (!kWeightFirst && i < vectors) weights[k] = kept_weight<Weight>(weight, i);
    }
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int i = threadIdx.x + k * blockDim.x;
      if (i < vectors) y[i] = scaled(kept[k].unpack(), scale, weights[k].unpack());
    }
  } else {
    const int64_t vectors = hidden / kWidth;
    const auto* inputs = reinterpret_cast<const Input*>(x);
    const auto* weights = reinterpret_cast<const Weight*>(weight);
    acc_t sum_of_squares = 0;
    for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
      sum_of_squares += squares(inputs[i]);
    }
    const acc_t scale = reciprocal_rms(block_sum(sum_of_squares) * inverse_hidden, eps);
    if (rrms != nullptr && threadIdx.x == 0) rrms[row] = scale;
    for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
      y[i] = scaled(inputs[i], scale, weight_at(weights, i));
    }
  }
}
// [/kernel]

// [cluster] a cluster of blocks shares one row after the other
constexpr int kClusterBlocks = 8;
constexpr int kClusterThreads = 256;
constexpr int kClusterKept = 4;

// The weight stays in registers for all rows, and the next row is on its way while the
// cluster adds up this one. Three blocks a multiprocessor leave 80 registers a thread.
template <typename scalar_t, typename weight_t, int kWidth>
__global__ void __launch_bounds__(kClusterThreads,
                                  sizeof(weight_t) > sizeof(scalar_t) ? 2 : 3)
    rms_norm_cluster_kernel(const scalar_t* input, int64_t input_stride,
                            const weight_t* __restrict__ weight, scalar_t* output,
                            int64_t output_stride,
                            accumulate_t<scalar_t>* __restrict__ rrms, int64_t rows,
                            int64_t hidden, accumulate_t<scalar_t> inverse_hidden,
                            accumulate_t<scalar_t> eps) {
  using acc_t = accumulate_t<scalar_t>;
  using Input = Vector<scalar_t, kWidth>;
  using Weight = Vector<weight_t, kWidth>;

  __shared__ RowSum<acc_t, kClusterBlocks> row_sum;
  row_sum.start();
  const int block = blockIdx.x % kClusterBlocks;
  const int first = block * blockDim.x + threadIdx.x;
  const int step = kClusterBlocks * blockDim.x;
  const int vectors = static_cast<int>(hidden / kWidth);
  Packed<Input> kept[kClusterKept], next[kClusterKept];
  Packed<Weight> weights[kClusterKept];

  const auto for_each_vector = [&](auto body) {
#pragma unroll
    for (int k = 0; k < kClusterKept; ++k) {
      if (first + k * step < vectors) body(k, first + k * step);
    }
  };
  const auto load = [&](Packed<Input>* loaded, int64_t row) {
    const auto* x = reinterpret_cast<const Packed<Input>*>(input + row * input_stride);
    for_each_vector([&](int k, int i) { loaded[k] = x[i]; });
  };

  const int64_t clusters = gridDim.x / kClusterBlocks;
  int64_t row = blockIdx.x / kClusterBlocks;
  load(kept, row);  // there are no more clusters than rows
  for_each_vector([&](int k, int i) { weights[k] = kept_weight<Weight>(weight, i); });
  for (int turn = 0; row < rows; ++turn, row += clusters) {
    acc_t sum_of_squares = 0;
    for_each_vector([&](int k, int) { sum_of_squares += squares(kept[k].unpack()); });
    if (row + clusters < rows) load(next, row + clusters);
    const acc_t scale =
        reciprocal_rms(row_sum.sum(sum_of_squares, turn) * inverse_hidden, eps);
    if (rrms != nullptr && first == 0) rrms[row] = scale;
    auto* y = reinterpret_cast<Input*>(output + row * output_stride);
    for_each_vector([&](int k, int i) {
      y[i] = scaled(kept[k].unpack(), scale, weights[k].unpack());
      kept[k] = next[k];
    });
  }
}
// [/cluster]

#endif  // OPBOOK_GPU_COMPILER

}  // namespace opbook

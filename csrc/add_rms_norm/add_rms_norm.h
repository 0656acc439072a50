// sum = input + residual, output = rms_norm(sum), over the last dimension, in one
// kernel: the sum is normalized while it is still in registers.
#pragma once

#include "../rms_norm/rms_norm.h"

namespace opbook {

// [math] rounded as eager's addition rounds, so that the norm sees what eager's sees
template <typename scalar_t>
OPBOOK_HOST_DEVICE inline scalar_t rounded_sum(scalar_t input, scalar_t residual) {
  using acc_t = accumulate_t<scalar_t>;
  return static_cast<scalar_t>(static_cast<acc_t>(input) +
                               static_cast<acc_t>(residual));
}
// [/math]

// [launcher]
// As launch_rms_norm of the sum of two matrices. `output` and `sum` are contiguous and
// share no memory with what is read.
template <typename scalar_t, typename weight_t>
const char* launch_add_rms_norm(const scalar_t* input, int64_t input_stride,
                                const scalar_t* residual, int64_t residual_stride,
                                const weight_t* weight, scalar_t* output, scalar_t* sum,
                                accumulate_t<scalar_t>* rrms, int64_t rows,
                                int64_t hidden, double eps, void* stream);
// [/launcher]

#if defined(OPBOOK_GPU_COMPILER)

// [kernel] one block, one row, as rms_norm_kernel
template <typename scalar_t, int kWidth>
__device__ inline Vector<scalar_t, kWidth> rounded_sums(
    Vector<scalar_t, kWidth> input, Vector<scalar_t, kWidth> residual) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    input.data[j] = rounded_sum(input.data[j], residual.data[j]);
  }
  return input;
}

constexpr int kWeightFirstThreads = 512;  // more would not leave the registers for it

// kKept vectors a thread are the whole row of sums. With kKept = 0 the sums are read
// again, from cache, by the threads that wrote them.
template <typename scalar_t, typename weight_t, int kKept, bool kWeightFirst,
          int kWidth>
__global__ void __launch_bounds__(kWeightFirst ? kWeightFirstThreads : kMaxThreads, 1)
    add_rms_norm_kernel(const scalar_t* __restrict__ input, int64_t input_stride,
                        const scalar_t* __restrict__ residual, int64_t residual_stride,
                        const weight_t* __restrict__ weight,
                        scalar_t* __restrict__ output, scalar_t* __restrict__ sum,
                        accumulate_t<scalar_t>* __restrict__ rrms, int64_t rows,
                        int64_t hidden, accumulate_t<scalar_t> inverse_hidden,
                        accumulate_t<scalar_t> eps) {
  using acc_t = accumulate_t<scalar_t>;
  using Input = Vector<scalar_t, kWidth>;
  using Weight = Vector<weight_t, kWidth>;

  const int64_t row = blockIdx.x + static_cast<int64_t>(gridDim.x) * blockIdx.y;
  if (row >= rows) return;
  const auto* x = reinterpret_cast<const Input*>(input + row * input_stride);
  const auto* r = reinterpret_cast<const Input*>(residual + row * residual_stride);
  auto* y = reinterpret_cast<Input*>(output + row * hidden);
  auto* s = reinterpret_cast<Input*>(sum + row * hidden);

  acc_t sum_of_squares = 0;
  if constexpr (kKept > 0) {
    const int vectors = static_cast<int>(hidden / kWidth);
    using Kept = const Packed<Input>*;
    Packed<Input> kept[kKept], residuals[kKept];
    Packed<Weight> weights[kKept];
#pragma unroll
    for (int k = 0; k < kKept; ++k) {  // every load is on its way before the first sum
      const int i = threadIdx.x + k * blockDim.x;
      if (i < vectors) {
        kept[k] = reinterpret_cast<Kept>(x)[i],
        residuals[k] = reinterpret_cast<Kept>(r)[i];
      }
      if (kWeightFirst && i < vectors) weights[k] = kept_weight<Weight>(weight, i);
    }
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int i = threadIdx.x + k * blockDim.x;
      if (i >= vectors) continue;
      const Input sums = rounded_sums(kept[k].unpack(), residuals[k].unpack());
      s[i] = sums;
      sum_of_squares += squares(sums);
      kept[k] = pack(sums);
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
    for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
      const Input sums = rounded_sums(x[i], r[i]);
      s[i] = sums;
      sum_of_squares += squares(sums);
    }
    const acc_t scale = reciprocal_rms(block_sum(sum_of_squares) * inverse_hidden, eps);
    if (rrms != nullptr && threadIdx.x == 0) rrms[row] = scale;
    for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
      y[i] = scaled(s[i], scale, weight_at(reinterpret_cast<const Weight*>(weight), i));
    }
  }
}
// [/kernel]

#endif  // OPBOOK_GPU_COMPILER

}  // namespace opbook

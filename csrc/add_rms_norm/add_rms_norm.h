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

// [kernel] the threads of one threadIdx.y, one row, as rms_norm_kernel
template <typename scalar_t, int kWidth>
__device__ inline Vector<scalar_t, kWidth> rounded_sums(
    Vector<scalar_t, kWidth> input, Vector<scalar_t, kWidth> residual) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    input.data[j] = rounded_sum(input.data[j], residual.data[j]);
  }
  return input;
}

// The form for few rows has short code, because code has to come from memory too: it
// gives the cache no hints, and rows do not share a block.
constexpr bool is_for_few_rows(int kept) { return kept == 1; }

// kKept vectors a thread are the whole row of sums. With kKept = 0 the sums are read
// again, from cache, by the threads that wrote them.
template <typename scalar_t, typename weight_t, int kKept, int kWidth>
__global__ void __launch_bounds__(kMaxThreads, 1)
    add_rms_norm_kernel(const scalar_t* __restrict__ input, int64_t input_stride,
                        const scalar_t* __restrict__ residual, int64_t residual_stride,
                        const weight_t* __restrict__ weight,
                        scalar_t* __restrict__ output, scalar_t* __restrict__ sum,
                        accumulate_t<scalar_t>* __restrict__ rrms, int64_t rows,
                        int64_t hidden, accumulate_t<scalar_t> inverse_hidden,
                        accumulate_t<scalar_t> eps, Keep keep) {
  using acc_t = accumulate_t<scalar_t>;
  using Input = Vector<scalar_t, kWidth>;
  constexpr bool kFew = is_for_few_rows(kKept);
  constexpr bool kShareBlock = rows_share_block(kKept, kWidth);

  const int64_t row = kShareBlock ? row_of_thread()
                      : kFew      ? blockIdx.x
                                  : row_of_block();
  const int64_t length = row < rows ? hidden : 0;
  const scalar_t* x = input + row * input_stride;
  const scalar_t* r = residual + row * residual_stride;
  scalar_t* y = output + row * hidden;
  auto* sums = reinterpret_cast<Input*>(sum + row * hidden);
  const L2Cache l2(kFew ? Keep::kAny : keep);

  acc_t sum_of_squares = 0;
  if constexpr (kKept > 0) {
    KeptRow<scalar_t, weight_t, kKept, kWidth> kept(threadIdx.x, blockDim.x, length);
    Packed<Input> residuals[kKept];
    kept.load(x, kept.inputs, l2);
    kept.load(r, residuals, l2);
    if (kFew) kept.load_weight(weight);
    kept.for_each([&](int k, int i) {
      const Input rounded =
          rounded_sums(kept.inputs[k].unpack(), residuals[k].unpack());
      l2.store(sums + i, rounded);
      sum_of_squares += squares(rounded);
      kept.inputs[k] = pack(rounded);
    });
    const acc_t scale =
        row_scale<kShareBlock>(sum_of_squares, inverse_hidden, eps, rrms, row, rows);
    if (!kFew) kept.load_weight(weight);
    kept.store_scaled(y, scale, l2);
  } else {
    const auto* inputs = reinterpret_cast<const Input*>(x);
    const auto* residuals = reinterpret_cast<const Input*>(r);
    for (int64_t i = threadIdx.x; i < length / kWidth; i += blockDim.x) {
      const Input rounded = rounded_sums(inputs[i], residuals[i]);
      sums[i] = rounded;
      sum_of_squares += squares(rounded);
    }
    const acc_t scale =
        row_scale<kShareBlock>(sum_of_squares, inverse_hidden, eps, rrms, row, rows);
    store_scaled_row<kWidth>(sum + row * hidden, weight, y, length, scale, l2);
  }
}
// [/kernel]

#endif  // OPBOOK_GPU_COMPILER

}  // namespace opbook

// The gradients of RMSNorm: of its input, and of its weight, which is a sum over rows.
#pragma once

#include "rms_norm.h"

namespace opbook {

// Gradient of the formula for one element, given the row's reciprocal_rms and
// mean(grad * weight * input): differentiate x * rrms, whose rrms depends on every x.
template <typename acc_t>
OPBOOK_HOST_DEVICE inline acc_t input_gradient(acc_t weighted_grad, acc_t input,
                                               acc_t rrms, acc_t mean_product) {
  return rrms * (weighted_grad - input * (rrms * rrms * mean_product));
}

// First row of a chunk; chunk `chunks` begins past the last row.
OPBOOK_HOST_DEVICE inline int64_t first_row(int64_t chunk, int64_t chunks,
                                            int64_t rows) {
  return rows / chunks * chunk + (chunk < rows % chunks ? chunk : rows % chunks);
}

// How many partial sums of the weight's gradient the current device needs at most. It
// depends on the shape and on the device alone, so it is enough for rows that begin
// anywhere.
template <typename scalar_t>
int64_t rms_norm_backward_chunks(int64_t rows, int64_t hidden);

// Both gradients. `grad_input` is contiguous, as is `added`, which is added to it; a
// null `grad_input` or `grad_weight` is not wanted, a null `added` is zero. `partial`
// is scratch of rms_norm_backward_chunks(rows, hidden) * hidden elements.
template <typename scalar_t, typename weight_t>
const char* launch_rms_norm_backward(
    const scalar_t* grad, int64_t grad_stride, const scalar_t* input,
    int64_t input_stride, const weight_t* weight, const accumulate_t<scalar_t>* rrms,
    const scalar_t* added, scalar_t* grad_input, accumulate_t<scalar_t>* partial,
    weight_t* grad_weight, int64_t rows, int64_t hidden, void* stream);

#if defined(OPBOOK_GPU_COMPILER)

// A thread's part of the sum over the row: grad * input * weight.
template <typename scalar_t, typename weight_t, int kWidth>
__device__ inline accumulate_t<scalar_t> products(Vector<scalar_t, kWidth> grads,
                                                  Vector<weight_t, kWidth> weights,
                                                  Vector<scalar_t, kWidth> inputs) {
  using acc_t = accumulate_t<scalar_t>;
  acc_t sum = 0;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    sum += static_cast<acc_t>(grads.data[j]) * static_cast<acc_t>(inputs.data[j]) *
           static_cast<acc_t>(weights.data[j]);
  }
  return sum;
}

// Stores vector i of a chunk of sums. If there is one chunk, it is the gradient;
// otherwise sum_chunks_kernel adds up the chunks.
template <typename Columns, typename acc_t, typename weight_t, int kWidth>
__device__ inline void store_chunk(const Columns& columns, Vector<acc_t, kWidth> sums,
                                   int i, int64_t chunk, int64_t chunks, acc_t* partial,
                                   weight_t* grad_weight) {
  if (chunks == 1) {
    Vector<weight_t, kWidth> total;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      total.data[j] = static_cast<weight_t>(sums.data[j]);
    }
    columns.store(grad_weight, i, total);
  } else {
    columns.store(partial + chunk * columns.count, i, sums);
  }
}

// For few rows: one block has one row, as in the forward kernel for few rows.
// In so short a call, loading the kernel's code takes a part of the time. So these rows
// have a small kernel of their own, which converts every element once. It stores the
// row's part of the weight's gradient first, so the store is in flight while the block
// adds up.
template <typename scalar_t, typename weight_t, bool kAdded, bool kAligned>
__global__ void __launch_bounds__(kMaxThreads, 1) rms_norm_backward_few_rows_kernel(
    const scalar_t* __restrict__ grads, int64_t grad_stride,
    const scalar_t* __restrict__ inputs, int64_t input_stride,
    const weight_t* __restrict__ weight,
    const accumulate_t<scalar_t>* __restrict__ rrms, const scalar_t* __restrict__ added,
    scalar_t* __restrict__ grad_input, accumulate_t<scalar_t>* __restrict__ partial,
    weight_t* __restrict__ grad_weight, int /*rows*/, int hidden,
    accumulate_t<scalar_t> inverse_hidden) {
  const View<const scalar_t> grad{grads, grad_stride}, input{inputs, input_stride};
  using acc_t = accumulate_t<scalar_t>;
  constexpr int kWidth = kElements<scalar_t>;
  using Input = Vector<scalar_t, kWidth>;

  const int64_t row = blockIdx.x, chunks = gridDim.x;
  if (partial != nullptr && chunks > 1) let_next_kernel_start();
  const int i = threadIdx.x;
  const Columns<kWidth, kAligned> columns(input.row(row), hidden);
  const bool has_vector = i < columns.vectors();
  const acc_t scale = rrms[row];
  acc_t x[kWidth], dyw[kWidth], product = 0;  // dyw is dy * weight
  Input addends{};
  if (has_vector) {
    const Input grads = columns.elements(grad.row(row), i);
    const Input inputs = columns.elements(input.row(row), i);
    if constexpr (kAdded) {
      addends = columns.elements(added + row * hidden, i);
    }
    const auto weights = weight_at(columns, weight, i);
    Vector<acc_t, kWidth> dw;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const auto dy = static_cast<acc_t>(grads.data[j]);
      x[j] = static_cast<acc_t>(inputs.data[j]);
      dyw[j] = dy * static_cast<acc_t>(weights.data[j]);
      product += dyw[j] * x[j];
      dw.data[j] = dy * x[j] * scale;
    }
    if (partial != nullptr) {
      store_chunk(columns, dw, i, row, chunks, partial, grad_weight);
    }
  }
  const acc_t mean_product = block_sum(product) * inverse_hidden;
  if (has_vector && grad_input != nullptr) {
    Input stored;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      acc_t dx = input_gradient(dyw[j], x[j], scale, mean_product);
      if (kAdded) dx += static_cast<acc_t>(addends.data[j]);
      stored.data[j] = static_cast<scalar_t>(dx);
    }
    columns.store(grad_input + row * hidden, i, stored);
  }
}

// [fused] reads gradient and input once, for both gradients
constexpr int kBackwardKept = 4;  // vectors of a row that a thread keeps
constexpr int kShortKept = 2;     // the same, where a row needs no more than a warp
constexpr int kBackwardThreads = 512;
constexpr int kSharedThreads = 256;  // of a block that has several rows
// The largest block, and how many of them fill a multiprocessor of NVIDIA's: a thread
// has 128 registers, or 80 if it keeps less.
constexpr int backward_threads(int kept) {
  return kept == kShortKept ? kSharedThreads : kBackwardThreads;
}
constexpr int backward_blocks(int kept) { return kept == kShortKept ? 3 : 1; }

// What a thread keeps of the rows that it walks through, and its columns' share of the
// weight's gradient. kAdded, whether `added` is there, is a constant, because the
// registers are all taken. For rows that are not aligned, `added` is loaded element by
// element, as is their weight.
template <typename scalar_t, typename weight_t, int kKept, bool kAdded, bool kAligned>
struct KeptGradients {
  static constexpr int kWidth = kElements<scalar_t>;
  using acc_t = accumulate_t<scalar_t>;
  using Input = Vector<scalar_t, kWidth>;
  using Weight = Vector<weight_t, kWidth>;
  using Sums = Vector<acc_t, kWidth>;

  Columns<kWidth, kAligned> columns;
  int first, step, vectors;  // this thread's first vector, how far to its next, the end
  Packed<Input> x[kKept], dy[kKept];
  Sums dw[kKept] = {};

  __device__ KeptGradients(int first, int step, Columns<kWidth, kAligned> columns)
      : columns(columns),
        first(first),
        step(step),
        vectors(static_cast<int>(columns.vectors())) {}

  template <typename Body>
  __device__ void for_each(Body body) const {
    for_each_kept<kKept>(first, step, vectors, body);
  }

  __device__ void load(View<const scalar_t> grad, View<const scalar_t> input, int row,
                       int rows, Packed<Input>* grads, Packed<Input>* inputs) const {
    const bool whole = columns.may_load_whole(input.data, row, rows, input.stride) &&
                       columns.may_load_whole(grad.data, row, rows, grad.stride);
    const scalar_t *row_x = input.row(row), *row_dy = grad.row(row);
    if (kAligned || whole) {
      for_each([&](int k, int i) {
        inputs[k] = pack(*columns.at(row_x, i)),
        grads[k] = pack(*columns.at(row_dy, i));
      });
    } else {
      for_each([&](int k, int i) {
        inputs[k] = pack(columns.elements(row_x, i));
        grads[k] = pack(columns.elements(row_dy, i));
      });
    }
  }

  template <typename WeightsAt>
  __device__ acc_t product(WeightsAt weights_at) {
    acc_t sum = 0;
    for_each([&](int k, int i) {
      sum += products(columns.only_inside(i, dy[k].unpack()), weights_at(k, i),
                      columns.only_inside(i, x[k].unpack()));
    });
    return sum;
  }

  // Stores the row of the input's gradient, unless it is null, and adds to the
  // weight's. One loop for both takes fewer registers than two.
  template <typename WeightsAt>
  __device__ void differentiate(WeightsAt weights_at,
                                const scalar_t* __restrict__ added,
                                scalar_t* __restrict__ grad_input, int64_t place,
                                acc_t scale, acc_t mean_product) {
    for_each([&](int k, int i) {
      const Input inputs = x[k].unpack(), grads = dy[k].unpack();
      const Weight weights = weights_at(k, i);
      Input dx{};
      if constexpr (kAdded) dx = columns.elements(added + place, i);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const acc_t value = static_cast<acc_t>(inputs.data[j]);
        const acc_t slope = static_cast<acc_t>(grads.data[j]);
        acc_t result = input_gradient(slope * static_cast<acc_t>(weights.data[j]),
                                      value, scale, mean_product);
        if constexpr (kAdded) result += static_cast<acc_t>(dx.data[j]);
        dx.data[j] = static_cast<scalar_t>(result);
        dw[k].data[j] += slope * value * scale;
      }
      if (grad_input != nullptr) columns.store(grad_input + place, i, dx);
    });
  }
};

// Stores the chunk of a block that has several rows: each row leaves its sums in
// `sums`, in shared memory, and each thread adds up columns.
template <typename Kept, typename acc_t, typename weight_t>
__device__ inline void store_chunk_of_rows(const Kept& kept, acc_t* sums, int hidden,
                                           int64_t chunk, int64_t chunks,
                                           acc_t* partial, weight_t* grad_weight) {
  __syncthreads();
  kept.for_each([&](int k, int i) {
    kept.columns.store_plainly(sums + threadIdx.y * hidden, i, kept.dw[k]);
  });
  __syncthreads();
  const int threads = blockDim.x * blockDim.y;
  const Columns<1, true> single(sums, hidden);
  for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < hidden; i += threads) {
    Vector<acc_t, 1> sum{};
    for (unsigned y = 0; y < blockDim.y; ++y) sum.data[0] += sums[y * hidden + i];
    store_chunk(single, sum, i, chunk, chunks, partial, grad_weight);
  }
}

// A row belongs to the threads of one threadIdx.y, in all kBlocks blocks of a cluster.
// They walk from row to row. The next row is in flight while this one is added up.
template <typename scalar_t, typename weight_t, int kKept, int kBlocks, bool kAdded,
          bool kAligned>
__global__ void __launch_bounds__(backward_threads(kKept), backward_blocks(kKept))
    rms_norm_backward_kernel(const scalar_t* __restrict__ grads, int64_t grad_stride,
                             const scalar_t* __restrict__ inputs, int64_t input_stride,
                             const weight_t* __restrict__ weight,
                             const accumulate_t<scalar_t>* __restrict__ rrms,
                             const scalar_t* __restrict__ added,
                             scalar_t* __restrict__ grad_input,
                             accumulate_t<scalar_t>* __restrict__ partial,
                             weight_t* __restrict__ grad_weight, int rows, int hidden,
                             accumulate_t<scalar_t> inverse_hidden) {
  const View<const scalar_t> grad{grads, grad_stride}, input{inputs, input_stride};
  using acc_t = accumulate_t<scalar_t>;
  constexpr bool kKeepWeight =
      sizeof(weight_t) <= sizeof(scalar_t) && !(kAdded && kBlocks > 1);
  using Kept = KeptGradients<scalar_t, weight_t, kKept, kAdded, kAligned>;

  // One memory for both: the sums of columns come when those of rows are done.
  constexpr int kSums = kBlocks == 1 ? kSharedThreads * kKept * Kept::kWidth : 1;
  __shared__ union {
    RowSum<acc_t, kBlocks> row_sum;
    alignas(typename Kept::Sums) acc_t sums[kSums];
  } shared;
  shared.row_sum.start();
  // Otherwise no sum_chunks_kernel follows.
  if (partial != nullptr && gridDim.x > kBlocks) let_next_kernel_start();
  const int chunk = blockIdx.x / kBlocks, chunks = gridDim.x / kBlocks;
  const int row_step = chunks * blockDim.y;
  int row = chunk * blockDim.y + threadIdx.y;
  // The launcher sees to it that all rows of a thread are cut in the same places.
  Kept kept(blockIdx.x % kBlocks * blockDim.x + threadIdx.x, kBlocks * blockDim.x,
            {input.row(row), hidden});
  Packed<typename Kept::Input> next_x[kKept], next_dy[kKept];
  if (row < rows) kept.load(grad, input, row, rows, kept.dy, kept.x);
  Packed<typename Kept::Weight> w[kKeepWeight ? kKept : 1];
  if constexpr (kKeepWeight) {
    kept.for_each(
        [&](int k, int i) { w[k] = pack(weight_at(kept.columns, weight, i)); });
  }
  const auto weights_at = [&](int k, int i) {
    if constexpr (kKeepWeight) return w[k].unpack();
    return weight_at(kept.columns, weight, i);
  };

  for (int turn = 0; row - static_cast<int>(threadIdx.y) < rows;
       ++turn, row += row_step) {
    // Threads whose row is past the last one still take part in the sum.
    const bool has_row = row < rows;
    const acc_t product = has_row ? kept.product(weights_at) : acc_t(0);
    const int next = row + row_step;
    if (next < rows) kept.load(grad, input, next, rows, next_dy, next_x);
    const acc_t scale = has_row ? rrms[row] : acc_t(0);
    const acc_t sum = kKept == kShortKept ? warp_sum(product, blockDim.x)
                                          : shared.row_sum.sum(product, turn);
    if (has_row) {
      kept.differentiate(weights_at, added, grad_input, int64_t{row} * hidden, scale,
                         sum * inverse_hidden);
    }
#pragma unroll
    for (int k = 0; k < kKept; ++k) kept.x[k] = next_x[k], kept.dy[k] = next_dy[k];
  }

  if (partial == nullptr) return;
  if (kBlocks == 1 && blockDim.y > 1) {
    return store_chunk_of_rows(kept, shared.sums, hidden, chunk, chunks, partial,
                               grad_weight);
  }
  kept.for_each([&](int k, int i) {
    store_chunk(kept.columns, kept.dw[k], i, chunk, chunks, partial, grad_weight);
  });
}
// [/fused]

// For rows that are too long for the registers of a block or a cluster, or too many to
// count in an int: two kernels that read both tensors.

// One block, one row.
template <typename scalar_t, typename weight_t, bool kAligned>
__global__ void __launch_bounds__(kMaxThreads, 1) rms_norm_input_gradient_kernel(
    const scalar_t* __restrict__ grads, int64_t grad_stride,
    const scalar_t* __restrict__ inputs, int64_t input_stride,
    const weight_t* __restrict__ weight,
    const accumulate_t<scalar_t>* __restrict__ rrms, const scalar_t* __restrict__ added,
    scalar_t* __restrict__ grad_input, int64_t rows, int64_t hidden,
    accumulate_t<scalar_t> inverse_hidden) {
  const View<const scalar_t> grad{grads, grad_stride}, input{inputs, input_stride};
  using acc_t = accumulate_t<scalar_t>;
  constexpr int kWidth = kElements<scalar_t>;
  using Input = Vector<scalar_t, kWidth>;

  const int64_t row = row_of_block();
  if (row >= rows) return;
  const scalar_t *dy = grad.row(row), *x = input.row(row);
  const Columns<kWidth, kAligned> columns(x, hidden);
  bool whole = columns.may_load_whole(input.data, row, rows, input.stride) &&
               columns.may_load_whole(grad.data, row, rows, grad.stride);
  if (added != nullptr)
    whole = whole && columns.may_load_whole(added, row, rows, hidden);
  const int64_t vectors = columns.vectors();

  acc_t product = 0;
#pragma unroll 2  // more would not fit the registers
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const auto weights = weight_at(columns, weight, i);
    product += products(columns.only_inside(i, columns.load(dy, i, whole)), weights,
                        columns.only_inside(i, columns.load(x, i, whole)));
  }
  const acc_t mean_product = block_sum(product) * inverse_hidden;

#pragma unroll 2  // more would not fit the registers
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const Input grads = columns.load(dy, i, whole), inputs = columns.load(x, i, whole);
    const auto weights = weight_at(columns, weight, i);
    Input addends{}, stored;
    if (added != nullptr) addends = columns.load(added + row * hidden, i, whole);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      acc_t result = input_gradient(
          static_cast<acc_t>(grads.data[j]) * static_cast<acc_t>(weights.data[j]),
          static_cast<acc_t>(inputs.data[j]), rrms[row], mean_product);
      if (added != nullptr) result += static_cast<acc_t>(addends.data[j]);
      stored.data[j] = static_cast<scalar_t>(result);
    }
    columns.store(grad_input + row * hidden, i, stored);
  }
}

// A thread per column sums one chunk of rows; no atomics.
template <typename scalar_t>
__global__ void __launch_bounds__(kMaxThreads, 1)
    rms_norm_weight_gradient_kernel(const scalar_t* __restrict__ grads,
                                    int64_t grad_stride,
                                    const scalar_t* __restrict__ inputs,
                                    int64_t input_stride,
                                    const accumulate_t<scalar_t>* __restrict__ rrms,
                                    accumulate_t<scalar_t>* __restrict__ partial,
                                    int64_t rows, int64_t hidden) {
  const View<const scalar_t> grad{grads, grad_stride}, input{inputs, input_stride};
  using acc_t = accumulate_t<scalar_t>;
  const int64_t column = threadIdx.x + static_cast<int64_t>(blockDim.x) * blockIdx.x;
  if (column >= hidden) return;
  const int64_t chunk = blockIdx.y, chunks = gridDim.y;
  const int64_t end = first_row(chunk + 1, chunks, rows);
  acc_t sum = 0;
  for (int64_t row = first_row(chunk, chunks, rows); row < end; ++row) {
    sum += static_cast<acc_t>(grad.row(row)[column]) *
           static_cast<acc_t>(input.row(row)[column]) * rrms[row];
  }
  partial[chunk * hidden + column] = sum;
}

// [sum_chunks] a block adds up 32 columns: its warps take chunks in turns
constexpr int kColumns = 32;

template <typename acc_t, typename weight_t>
__global__ void __launch_bounds__(kMaxThreads, 1)
    sum_chunks_kernel(const acc_t* partial, weight_t* __restrict__ total,
                      int64_t chunks, int64_t hidden) {
  // `partial` is not __restrict__: it may be written until the wait is over.
  __shared__ acc_t sums[kMaxThreads / kColumns][kColumns];
  const int64_t column = threadIdx.x + static_cast<int64_t>(kColumns) * blockIdx.x;
  acc_t sum = 0;
  wait_for_kernel_before();
  for (int64_t chunk = threadIdx.y; chunk < chunks; chunk += blockDim.y) {
    if (column < hidden) sum += partial[chunk * hidden + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= hidden) return;
  for (unsigned y = 1; y < blockDim.y; ++y) sum += sums[y][threadIdx.x];
  total[column] = static_cast<weight_t>(sum);
}
// [/sum_chunks]

#endif  // OPBOOK_GPU_COMPILER

}  // namespace opbook

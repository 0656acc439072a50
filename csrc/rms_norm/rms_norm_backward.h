// The gradients of RMSNorm: of its input, and of its weight, which is a sum over rows.
#pragma once

#include "rms_norm.h"

namespace opbook {

// Gradient of the formula for one element, given the row's reciprocal_rms and
// mean(grad * weight * input): differentiate x * rrms, whose rrms depends on every x.
template <typename C>
OPBOOK_HOST_DEVICE inline C input_gradient(C weighted_grad, C input, C rrms,
                                           C mean_product) {
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
template <typename T>
int64_t rms_norm_backward_chunks(int64_t rows, int64_t hidden);

// What a call of backward works on. `added`, which is added to the input's gradient, is
// contiguous, as the results are. A null `added` is zero, and a null result is not
// wanted. `partial` is scratch of rms_norm_backward_chunks(rows, hidden) * hidden.
template <typename T, typename W>
struct rms_norm_backward_args {
  View<const T> grad, input;
  const W* weight;
  const compute_t<T>* rrms;
  const T* added;
  T* grad_input;
  compute_t<T>* partial;
  W* grad_weight;
  int64_t rows, hidden;
};

template <typename T, typename W>
const char* launch_rms_norm_backward(const rms_norm_backward_args<T, W>& args,
                                     void* stream);

#if defined(OPBOOK_GPU)

// A thread's part of the sum over the row: grad * input * weight.
template <typename T, typename W, int kWidth>
__device__ inline compute_t<T> products(Vector<T, kWidth> grads,
                                        Vector<W, kWidth> weights,
                                        Vector<T, kWidth> inputs) {
  using C = compute_t<T>;
  C sum = 0;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    sum += static_cast<C>(grads.data[j]) * static_cast<C>(inputs.data[j]) *
           static_cast<C>(weights.data[j]);
  }
  return sum;
}

// Stores vector i of a chunk of sums. If there is one chunk, it is the gradient;
// otherwise sum_chunks_kernel adds up the chunks.
template <typename Columns, typename C, typename W, int kWidth>
__device__ inline void store_chunk(const Columns& columns, Vector<C, kWidth> sums,
                                   int i, int64_t chunk, int64_t chunks, C* partial,
                                   W* grad_weight) {
  if (chunks == 1) {
    Vector<W, kWidth> total;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      total.data[j] = static_cast<W>(sums.data[j]);
    }
    columns.store(grad_weight, i, total);
  } else {
    columns.store(partial + chunk * columns.count, i, sums);
  }
}

// For few rows, with little code, as the forward kernel for them. It stores the row's
// part of the weight's gradient first, so the store is in flight while the block adds
// up.
template <typename T, typename W, bool kAdded, bool kAligned>
__global__ void __launch_bounds__(kMaxThreads, 1) rms_norm_backward_few_rows_kernel(
    const T* __restrict__ grads, int64_t grad_stride, const T* __restrict__ inputs,
    int64_t input_stride, const W* __restrict__ weight,
    const compute_t<T>* __restrict__ rrms, const T* __restrict__ added,
    T* __restrict__ grad_input, compute_t<T>* __restrict__ partial,
    W* __restrict__ grad_weight, int /*rows*/, int hidden,
    compute_t<T> inverse_hidden) {
  const View<const T> grad{grads, grad_stride}, input{inputs, input_stride};
  using C = compute_t<T>;
  constexpr int kWidth = kElements<T>;
  using Input = Vector<T, kWidth>;

  const int64_t row = blockIdx.x, chunks = gridDim.x;
  if (partial != nullptr && chunks > 1) let_next_kernel_start();
  const int i = threadIdx.x;
  const Columns<kWidth, kAligned> columns(input.row(row), hidden);
  const bool has_vector = i < columns.vectors();
  const C scale = rrms[row];
  C x[kWidth], dyw[kWidth], product = 0;  // dyw is dy * weight
  Input addends{};
  if (has_vector) {
    const Input grads = columns.elements(grad.row(row), i);
    const Input inputs = columns.elements(input.row(row), i);
    if constexpr (kAdded) addends = columns.elements(added + row * hidden, i);
    const auto weights = weight_at(columns, weight, i);
    Vector<C, kWidth> dw;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const auto dy = static_cast<C>(grads.data[j]);
      x[j] = static_cast<C>(inputs.data[j]);
      dyw[j] = dy * static_cast<C>(weights.data[j]);
      product += dyw[j] * x[j];
      dw.data[j] = dy * x[j] * scale;
    }
    if (partial != nullptr) {
      store_chunk(columns, dw, i, row, chunks, partial, grad_weight);
    }
  }
  const C mean_product = block_sum(product) * inverse_hidden;
  if (has_vector && grad_input != nullptr) {
    Input stored;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      C dx = input_gradient(dyw[j], x[j], scale, mean_product);
      if (kAdded) dx += static_cast<C>(addends.data[j]);
      stored.data[j] = static_cast<T>(dx);
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
template <typename T, typename W, int kKept, bool kAdded, bool kAligned>
struct KeptGradients : Share<kKept, kElements<T>, kAligned> {
  static constexpr int kWidth = kElements<T>;
  using Base = Share<kKept, kWidth, kAligned>;
  using Base::columns, Base::for_each;
  using C = compute_t<T>;
  using Input = Vector<T, kWidth>;
  using Weight = Vector<W, kWidth>;
  using Sums = Vector<C, kWidth>;

  Packed<Input> x[kKept], dy[kKept];
  Sums dw[kKept] = {};

  using Base::Base;

  __device__ void load(View<const T> grad, View<const T> input, int row, int rows,
                       Packed<Input>* grads, Packed<Input>* inputs) const {
    const bool whole = columns.may_load_whole(input, row, rows) &&
                       columns.may_load_whole(grad, row, rows);
    const T *row_x = input.row(row), *row_dy = grad.row(row);
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

  __device__ void load_weight(const W* __restrict__ weight, Packed<Weight>* w) const {
    for_each([&](int k, int i) { w[k] = pack(weight_at(columns, weight, i)); });
  }

  template <typename WeightsAt>
  __device__ C product(WeightsAt weights_at) {
    C sum = 0;
    for_each([&](int k, int i) {
      sum += products(columns.only_inside(i, dy[k].unpack()), weights_at(k, i),
                      columns.only_inside(i, x[k].unpack()));
    });
    return sum;
  }

  // Stores the row of the input's gradient, unless it is null, and adds to the
  // weight's. One loop for both takes fewer registers than two.
  template <typename WeightsAt>
  __device__ void differentiate(WeightsAt weights_at, const T* __restrict__ added,
                                T* __restrict__ grad_input, int64_t offset, C scale,
                                C mean_product) {
    for_each([&](int k, int i) {
      const Input inputs = x[k].unpack(), grads = dy[k].unpack();
      const Weight weights = weights_at(k, i);
      Input dx{};
      if constexpr (kAdded) dx = columns.elements(added + offset, i);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const C value = static_cast<C>(inputs.data[j]);
        const C slope = static_cast<C>(grads.data[j]);
        C result = input_gradient(slope * static_cast<C>(weights.data[j]), value, scale,
                                  mean_product);
        if constexpr (kAdded) result += static_cast<C>(dx.data[j]);
        dx.data[j] = static_cast<T>(result);
        dw[k].data[j] += slope * value * scale;
      }
      if (grad_input != nullptr) columns.store(grad_input + offset, i, dx);
    });
  }
};

// Stores the chunk of a block that has several rows: each row leaves its sums in
// `sums`, in shared memory, and each thread adds up columns.
template <typename Kept, typename C, typename W>
__device__ inline void store_chunk_of_rows(const Kept& kept, C* sums, int hidden,
                                           int64_t chunk, int64_t chunks, C* partial,
                                           W* grad_weight) {
  __syncthreads();
  kept.for_each([&](int k, int i) {
    kept.columns.store_plainly(sums + threadIdx.y * hidden, i, kept.dw[k]);
  });
  __syncthreads();
  const int threads = blockDim.x * blockDim.y;
  const Columns<1, true> single(sums, hidden);
  for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < hidden; i += threads) {
    Vector<C, 1> sum{};
    for (unsigned y = 0; y < blockDim.y; ++y) sum.data[0] += sums[y * hidden + i];
    store_chunk(single, sum, i, chunk, chunks, partial, grad_weight);
  }
}

// One memory for both: the sums of columns come when those of rows are done.
template <typename Kept, int kKept, int kBlocks>
union BackwardMemory {
  static constexpr int kSums = kBlocks == 1 ? kSharedThreads * kKept * Kept::kWidth : 1;
  RowSum<typename Kept::C, kBlocks> row_sum;
  alignas(typename Kept::Sums) typename Kept::C sums[kSums];
};

// A row belongs to the threads of one threadIdx.y, in all kBlocks blocks of a cluster.
// They walk from row to row. The next row is in flight while this one is added up.
template <typename T, typename W, int kKept, int kBlocks, bool kAdded, bool kAligned>
__global__ void __launch_bounds__(backward_threads(kKept), backward_blocks(kKept))
    rms_norm_backward_kernel(const T* __restrict__ grads, int64_t grad_stride,
                             const T* __restrict__ inputs, int64_t input_stride,
                             const W* __restrict__ weight,
                             const compute_t<T>* __restrict__ rrms,
                             const T* __restrict__ added, T* __restrict__ grad_input,
                             compute_t<T>* __restrict__ partial,
                             W* __restrict__ grad_weight, int rows, int hidden,
                             compute_t<T> inverse_hidden) {
  const View<const T> grad{grads, grad_stride}, input{inputs, input_stride};
  using C = compute_t<T>;
  constexpr bool kKeepWeight = sizeof(W) <= sizeof(T) && !(kAdded && kBlocks > 1);
  using Kept = KeptGradients<T, W, kKept, kAdded, kAligned>;

  __shared__ BackwardMemory<Kept, kKept, kBlocks> shared;
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
  if constexpr (kKeepWeight) kept.load_weight(weight, w);
  const auto weights_at = [&](int k, int i) {
    if constexpr (kKeepWeight) return w[k].unpack();
    return weight_at(kept.columns, weight, i);
  };

  for (int turn = 0; row - static_cast<int>(threadIdx.y) < rows;
       ++turn, row += row_step) {
    // Threads whose row is past the last one still take part in the sum.
    const bool has_row = row < rows;
    const C product = has_row ? kept.product(weights_at) : C(0);
    const int next = row + row_step;
    if (next < rows) kept.load(grad, input, next, rows, next_dy, next_x);
    const C scale = has_row ? rrms[row] : C(0);
    const C sum = kKept == kShortKept ? warp_sum(product, blockDim.x)
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
template <typename T, typename W, bool kAligned>
__global__ void __launch_bounds__(kMaxThreads, 1)
    rms_norm_input_gradient_kernel(const T* __restrict__ grads, int64_t grad_stride,
                                   const T* __restrict__ inputs, int64_t input_stride,
                                   const W* __restrict__ weight,
                                   const compute_t<T>* __restrict__ rrms,
                                   const T* __restrict__ added,
                                   T* __restrict__ grad_input, int64_t rows,
                                   int64_t hidden, compute_t<T> inverse_hidden) {
  const View<const T> grad{grads, grad_stride}, input{inputs, input_stride};
  using C = compute_t<T>;
  constexpr int kWidth = kElements<T>;
  using Input = Vector<T, kWidth>;

  const int64_t row = row_of_block();
  if (row >= rows) return;
  const T *dy = grad.row(row), *x = input.row(row);
  const Columns<kWidth, kAligned> columns(x, hidden);
  bool whole = columns.may_load_whole(input, row, rows) &&
               columns.may_load_whole(grad, row, rows);
  if (added != nullptr) {
    const View<const T> addends{added, hidden};
    whole = whole && columns.may_load_whole(addends, row, rows);
  }
  const int64_t vectors = columns.vectors();

  C product = 0;
#pragma unroll 2  // more would not fit the registers
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const auto weights = weight_at(columns, weight, i);
    product += products(columns.only_inside(i, columns.load(dy, i, whole)), weights,
                        columns.only_inside(i, columns.load(x, i, whole)));
  }
  const C mean_product = block_sum(product) * inverse_hidden;

#pragma unroll 2  // more would not fit the registers
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const Input grads = columns.load(dy, i, whole), inputs = columns.load(x, i, whole);
    const auto weights = weight_at(columns, weight, i);
    Input addends{}, stored;
    if (added != nullptr) addends = columns.load(added + row * hidden, i, whole);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      C result = input_gradient(
          static_cast<C>(grads.data[j]) * static_cast<C>(weights.data[j]),
          static_cast<C>(inputs.data[j]), rrms[row], mean_product);
      if (added != nullptr) result += static_cast<C>(addends.data[j]);
      stored.data[j] = static_cast<T>(result);
    }
    columns.store(grad_input + row * hidden, i, stored);
  }
}

// A thread per column sums one chunk of rows; no atomics.
template <typename T>
__global__ void __launch_bounds__(kMaxThreads, 1)
    rms_norm_weight_gradient_kernel(const T* __restrict__ grads, int64_t grad_stride,
                                    const T* __restrict__ inputs, int64_t input_stride,
                                    const compute_t<T>* __restrict__ rrms,
                                    compute_t<T>* __restrict__ partial, int64_t rows,
                                    int64_t hidden) {
  const View<const T> grad{grads, grad_stride}, input{inputs, input_stride};
  using C = compute_t<T>;
  const int64_t column = threadIdx.x + static_cast<int64_t>(blockDim.x) * blockIdx.x;
  if (column >= hidden) return;
  const int64_t chunk = blockIdx.y, chunks = gridDim.y;
  const int64_t end = first_row(chunk + 1, chunks, rows);
  C sum = 0;
  for (int64_t row = first_row(chunk, chunks, rows); row < end; ++row) {
    sum += static_cast<C>(grad.row(row)[column]) *
           static_cast<C>(input.row(row)[column]) * rrms[row];
  }
  partial[chunk * hidden + column] = sum;
}

// [sum_chunks] a block adds up 32 columns: its warps take chunks in turns
constexpr int kColumns = 32;

template <typename C, typename W>
__global__ void __launch_bounds__(kMaxThreads, 1)
    sum_chunks_kernel(const C* partial, W* __restrict__ total, int64_t chunks,
                      int64_t hidden) {
  // `partial` is not __restrict__: it may be written until the wait is over.
  __shared__ C sums[kMaxThreads / kColumns][kColumns];
  const int64_t column = threadIdx.x + static_cast<int64_t>(kColumns) * blockIdx.x;
  C sum = 0;
  wait_for_kernel_before();
  for (int64_t chunk = threadIdx.y; chunk < chunks; chunk += blockDim.y) {
    if (column < hidden) sum += partial[chunk * hidden + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= hidden) return;
  for (unsigned y = 1; y < blockDim.y; ++y) sum += sums[y][threadIdx.x];
  total[column] = static_cast<W>(sum);
}
// [/sum_chunks]

#endif  // OPBOOK_GPU

}  // namespace opbook

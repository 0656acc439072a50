// RMSNorm: output = input / sqrt(mean(input^2) + eps) * weight, over the last dimension
// (Zhang and Sennrich, "Root Mean Square Layer Normalization", arXiv:1910.07467, eq. 4,
// where eps is 0).
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <type_traits>

#include "columns.h"
#include "grid.h"
#include "launch.h"
#include "row_sum.h"

namespace opbook {

// [math] the formula, once, for every device
template <typename C>
OPBOOK_HOST_DEVICE inline C reciprocal_rms(C mean_square, C eps) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  // One instruction instead of two subroutines. HIP has rsqrt for double alone.
  if constexpr (std::is_same_v<C, float>) {
    return rsqrtf(mean_square + eps);
  } else {
    return rsqrt(mean_square + eps);
  }
#else
  return C(1) / std::sqrt(mean_square + eps);
#endif
}
// The sum that add_rms_norm normalizes, rounded as eager's addition rounds, so that the
// norm sees what eager's sees.
template <typename T>
OPBOOK_HOST_DEVICE inline T rounded_sum(T input, T residual) {
  using C = compute_t<T>;
  return static_cast<T>(static_cast<C>(input) + static_cast<C>(residual));
}
// [/math]

// [launcher]
// What a call works on: `rows` rows of `hidden` elements. `output` may be `input`. A
// null `weight` is one everywhere; a null `rrms`, which gets one value for each row, is
// not wanted. W is T or compute_t<T>.
template <typename T, typename W>
struct rms_norm_args {
  View<const T> input;
  const W* weight;
  View<T> output;
  compute_t<T>* rrms;
  int64_t rows, hidden;
  compute_t<T> eps;
};

// All pointers are device memory, `stream` is a cudaStream_t or hipStream_t. Returns
// null, or the runtime's words for a launch error.
template <typename T, typename W>
const char* launch_rms_norm(const rms_norm_args<T, W>& args, void* stream);

// For add_rms_norm: what is added to the input first, and where the sum goes.
template <typename T>
struct Residual {
  View<const T> rows;
  View<T> sum;
};
struct NoResidual {};
// [/launcher]

// The types of input and weight that launchers are compiled for.
#define OPBOOK_FOR_INPUT_AND_WEIGHT(INSTANTIATE) \
  INSTANTIATE(c10::Half, c10::Half);             \
  INSTANTIATE(c10::BFloat16, c10::BFloat16);     \
  INSTANTIATE(float, float);                     \
  INSTANTIATE(double, double);                   \
  INSTANTIATE(c10::Half, float);                 \
  INSTANTIATE(c10::BFloat16, float)

#if defined(OPBOOK_GPU)

// [operands]
// The size of the matrix, and the constants of the formula.
template <typename C>
struct Problem {
  int64_t rows, hidden;
  C inverse_hidden, eps;

  template <typename Args>
  explicit Problem(const Args& args)
      : rows(args.rows),
        hidden(args.hidden),
        inverse_hidden(C(1) / static_cast<C>(args.hidden)),
        eps(args.eps) {}

  __device__ C scale(C sum_of_squares) const {
    return reciprocal_rms(sum_of_squares * inverse_hidden, eps);
  }
};
// [/operands]

// [row] what a thread does with one vector of a row
template <typename T, int kWidth>
__device__ inline compute_t<T> squares(Vector<T, kWidth> x) {
  using C = compute_t<T>;
  C sum_of_squares = 0;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const C value = static_cast<C>(x.data[j]);
    sum_of_squares += value * value;
  }
  return sum_of_squares;
}

// Vector i of the weight, cut as the row is; of ones if there is no weight. All rows
// share the weight, so if the rows are not aligned, its vectors are aligned for few of
// them, and each element is loaded by itself.
template <typename Columns, typename W, typename Index>
__device__ inline auto weight_at(const Columns& columns, const W* weight, Index i) {
  if (weight != nullptr) return columns.elements(weight, i);
  decltype(columns.elements(weight, i)) ones;
#pragma unroll
  for (W& one : ones.data) one = 1.0f;
  return ones;
}

template <typename T, typename W, int kWidth>
__device__ inline Vector<T, kWidth> scaled(Vector<T, kWidth> x, compute_t<T> scale,
                                           Vector<W, kWidth> weight) {
  using C = compute_t<T>;
  Vector<T, kWidth> stored;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const C value = static_cast<C>(x.data[j]) * scale;
    stored.data[j] = static_cast<T>(value * static_cast<C>(weight.data[j]));
  }
  return stored;
}

template <typename T, int kWidth>
__device__ inline Vector<T, kWidth> rounded_sums(Vector<T, kWidth> input,
                                                 Vector<T, kWidth> residual) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    input.data[j] = rounded_sum(input.data[j], residual.data[j]);
  }
  return input;
}
// [/row]

// [kept]
// The vectors of a row that belong to one thread: kKept at most.
template <int kKept, int kWidth, bool kAligned>
struct Share {
  Columns<kWidth, kAligned> columns;
  // Of vectors: the thread's first, from each to its next, and the end of the row.
  int first, step, end;

  __device__ Share(int first, int step, Columns<kWidth, kAligned> columns)
      : columns(columns), first(first), step(step), end(columns.vectors()) {}

  // Calls body(k, i) for each: i is the place of the k-th in the row.
  template <typename Body>
  __device__ void for_each(Body body) const {
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      if (first + k * step < end) body(k, first + k * step);
    }
  }
};

// The same, in registers.
template <typename T, typename W, int kKept, int kWidth, bool kAligned>
struct KeptRow : Share<kKept, kWidth, kAligned> {
  using C = compute_t<T>;
  using Input = Vector<T, kWidth>;
  using Base = Share<kKept, kWidth, kAligned>;
  using Base::columns, Base::for_each;

  Packed<Input> inputs[kKept];
  Packed<Vector<W, kWidth>> weights[kKept];

  using Base::Base;

  // Vectors that are not whole come last, so that the others are in flight together.
  __device__ void load(const T* row, Packed<Input>* loaded, bool whole) const {
    if (kAligned || whole) {
      for_each([&](int k, int i) { loaded[k] = pack(*columns.at(row, i)); });
      return;
    }
    for_each([&](int k, int i) {
      if (columns.has_whole(row, i)) loaded[k] = pack(*columns.at(row, i));
    });
    for_each([&](int k, int i) {
      if (!columns.has_whole(row, i)) loaded[k] = pack(columns.elements(row, i));
    });
  }

  __device__ void load_weight(const W* weight) {
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int i = this->first + k * this->step;
      if (!kAligned || i < this->end) weights[k] = pack(weight_at(columns, weight, i));
    }
  }

  __device__ void add(const T* residual, T* sum, bool whole) {
    Packed<Input> residuals[kKept];
    load(residual, residuals, whole);
    for_each([&](int k, int i) {
      const Input rounded = rounded_sums(inputs[k].unpack(), residuals[k].unpack());
      columns.store(sum, i, rounded);
      inputs[k] = pack(rounded);
    });
  }

  __device__ C sum_of_squares() {
    C sum = 0;
    for_each([&](int k, int i) {
      sum += squares(columns.only_inside(i, inputs[k].unpack()));
    });
    return sum;
  }

  __device__ void store_scaled(T* row, C scale) {
    for_each([&](int k, int i) {
      columns.store(row, i, scaled(inputs[k].unpack(), scale, weights[k].unpack()));
    });
  }
};
// [/kept]

// [form]
// How a row is spread over the threads of a block: the vectors that a thread keeps, and
// the threads of the largest block.
template <int kKeptVectors, int kMostThreads>
struct Form {
  static constexpr int kKept = kKeptVectors;
  static constexpr int kThreads = kMostThreads;
  static constexpr int kVectors = kKept * kThreads;  // of the longest row
};

using TwoVectors = Form<2, 256>;
using ThreeVectors = Form<3, 256>;
using FourVectors = Form<4, kMaxThreads>;
using NarrowVectors = Form<6, 384>;    // of kNarrowBytes
constexpr int kShortRowThreads = 256;  // rows share a block of at most so many
constexpr int kNarrowBytes = 4;
// [/form]

// Whether all vectors of a row may be loaded whole: see Columns.
template <typename Columns, typename T, typename Added, typename C>
__device__ inline bool may_load_whole(const Columns& columns, View<const T> input,
                                      const Added& added, View<T> output, int64_t row,
                                      const Problem<C>& problem) {
  bool may =
      input.data != output.data && columns.may_load_whole(input, row, problem.rows);
  if constexpr (!std::is_empty_v<Added>) {
    may = may && columns.may_load_whole(added.rows, row, problem.rows);
  }
  return may;
}

// [kernel] the threads of one threadIdx.y normalize one row
template <typename Form, typename T, typename W, int kWidth, bool kAligned,
          typename Added>
__global__ void __launch_bounds__(Form::kThreads)
    rms_norm_kernel(View<const T> input, Added added, const W* __restrict__ weight,
                    View<T> output, compute_t<T>* __restrict__ rrms,
                    Problem<compute_t<T>> problem) {
  using C = compute_t<T>;

  __shared__ C partial[kMaxThreads / kMinWarpSize];
  const int64_t row = row_of_thread();
  // Threads past the last row have none of it, but they take part in the sum.
  const bool has_row = row < problem.rows;
  const Columns<kWidth, kAligned> columns(input.row(row), has_row ? problem.hidden : 0);
  const bool whole = may_load_whole(columns, input, added, output, row, problem);
  KeptRow<T, W, Form::kKept, kWidth, kAligned> kept(threadIdx.x, blockDim.x, columns);
  kept.load(input.row(row), kept.inputs, whole);
  // The weight is in flight during the sum, if there are registers for it.
  constexpr bool kWeightFirst = kAligned && std::is_empty_v<Added>;
  if constexpr (kWeightFirst) kept.load_weight(weight);
  if constexpr (!std::is_empty_v<Added>) {
    kept.add(added.rows.row(row), added.sum.row(row), whole);
  }
  const C scale = problem.scale(sum_of_row(kept.sum_of_squares(), partial));
  if (rrms != nullptr && threadIdx.x == 0 && has_row) rrms[row] = scale;
  if constexpr (!kWeightFirst) kept.load_weight(weight);
  kept.store_scaled(output.row(row), scale);
}
// [/kernel]

// [two_passes] a block has a row that does not fit its registers, and reads it twice
template <typename T, typename W, int kWidth, bool kAligned, typename Added>
__global__ void __launch_bounds__(kMaxThreads, 1)
    rms_norm_two_pass_kernel(View<const T> input, Added added,
                             const W* __restrict__ weight, View<T> output,
                             compute_t<T>* __restrict__ rrms,
                             Problem<compute_t<T>> problem) {
  using C = compute_t<T>;

  const int64_t row = row_of_block();
  if (row >= problem.rows) return;
  const T* x = input.row(row);
  const Columns<kWidth, kAligned> columns(x, problem.hidden);
  bool whole = may_load_whole(columns, input, added, output, row, problem);
  const int64_t vectors = columns.vectors();
  C sum_of_squares = 0;
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    auto read = columns.load(x, i, whole);
    if constexpr (!std::is_empty_v<Added>) {
      read = rounded_sums(read, columns.load(added.rows.row(row), i, whole));
      columns.store(added.sum.row(row), i, read);
    }
    sum_of_squares += squares(columns.only_inside(i, read));
  }
  const C scale = problem.scale(block_sum(sum_of_squares));
  if (rrms != nullptr && threadIdx.x == 0) rrms[row] = scale;
  // Each thread reads again what it has read, or the sums that it wrote, from cache.
  if constexpr (!std::is_empty_v<Added>) x = added.sum.row(row), whole = false;
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const auto weights = weight_at(columns, weight, i);
    columns.store(output.row(row), i,
                  scaled(columns.load(x, i, whole), scale, weights));
  }
}
// [/two_passes]

// [few_rows] a block has one row
constexpr int kFewRowsThreads = 512;
template <typename Added>
constexpr int kFewRowsKept = std::is_empty_v<Added> ? 2 : 1;  // vectors of a thread

// In so short a call, loading the kernel's code takes a part of the time. So these rows
// have a small kernel of their own: it takes only rows with a weight, and converts
// every element once.
template <typename T, typename W, int kWidth, bool kAligned, typename Added>
__global__ void __launch_bounds__(kFewRowsThreads, 1)
    rms_norm_few_rows_kernel(View<const T> input, Added added,
                             const W* __restrict__ weight, View<T> output,
                             compute_t<T>* __restrict__ rrms,
                             Problem<compute_t<T>> problem) {
  using C = compute_t<T>;
  using Input = Vector<T, kWidth>;
  constexpr int kKept = kFewRowsKept<Added>;

  const int64_t row = blockIdx.x;
  const Columns<kWidth, kAligned> columns(input.row(row), problem.hidden);
  const Share<kKept, kWidth, kAligned> share(threadIdx.x, blockDim.x, columns);

  C x[kKept][kWidth], sum_of_squares = 0;
  Vector<W, kWidth> weights[kKept];
  share.for_each([&](int k, int i) {
    Input loaded = columns.elements(input.row(row), i);
    weights[k] = columns.elements(weight, i);
    if constexpr (!std::is_empty_v<Added>) {
      loaded = rounded_sums(loaded, columns.elements(added.rows.row(row), i));
      columns.store(added.sum.row(row), i, loaded);
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      x[k][j] = static_cast<C>(loaded.data[j]);
      sum_of_squares += x[k][j] * x[k][j];
    }
  });
  const C scale = problem.scale(block_sum(sum_of_squares));
  if (rrms != nullptr && threadIdx.x == 0) rrms[row] = scale;
  share.for_each([&](int k, int i) {
    Input stored;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const C value = x[k][j] * scale;
      stored.data[j] = static_cast<T>(value * static_cast<C>(weights[k].data[j]));
    }
    columns.store(output.row(row), i, stored);
  });
}
// [/few_rows]

// [cluster] a cluster of blocks shares one row after the other
constexpr int kClusterBlocks = 8;
constexpr int kClusterThreads = 256;
constexpr int kClusterKept = 4;

// The weight stays in registers for all rows, and the next row is in flight while the
// cluster adds up this one. Three blocks a multiprocessor leave 80 registers a thread,
// two leave 128, for a weight wider than the input.
template <typename T, typename W, int kWidth, bool kAligned>
__global__ void __launch_bounds__(kClusterThreads, sizeof(W) > sizeof(T) ? 2 : 3)
    rms_norm_cluster_kernel(View<const T> input, const W* __restrict__ weight,
                            View<T> output, compute_t<T>* __restrict__ rrms,
                            Problem<compute_t<T>> problem) {
  using C = compute_t<T>;

  __shared__ RowSum<C, kClusterBlocks> row_sum;
  row_sum.start();
  const int first = blockIdx.x % kClusterBlocks * blockDim.x + threadIdx.x;
  const int64_t clusters = gridDim.x / kClusterBlocks;
  int64_t row = blockIdx.x / kClusterBlocks;
  // The launcher sees to it that all rows of a cluster are cut in the same places.
  const Columns<kWidth, kAligned> columns(input.row(row), problem.hidden);
  KeptRow<T, W, kClusterKept, kWidth, kAligned> kept(first, kClusterBlocks * blockDim.x,
                                                     columns);
  Packed<Vector<T, kWidth>> next[kClusterKept];
  const auto may_load_whole = [&](int64_t row) {
    return opbook::may_load_whole(columns, input, NoResidual{}, output, row, problem);
  };
  // There are no more clusters than rows.
  kept.load(input.row(row), kept.inputs, may_load_whole(row));
  kept.load_weight(weight);
  for (int turn = 0; row < problem.rows; ++turn, row += clusters) {
    const C sum_of_squares = kept.sum_of_squares();
    const int64_t next_row = row + clusters;
    if (next_row < problem.rows) {
      const T* x = input.row(next_row);
      const bool whole = may_load_whole(next_row);
      // kept.load() would take too many registers here.
      kept.for_each([&](int k, int i) { next[k] = pack(columns.load(x, i, whole)); });
    }
    const C scale = problem.scale(row_sum.sum(sum_of_squares, turn));
    if (rrms != nullptr && first == 0) rrms[row] = scale;
    kept.store_scaled(output.row(row), scale);
    kept.for_each([&](int k, int) { kept.inputs[k] = next[k]; });
  }
}
// [/cluster]

// The block in which a form has rows of `vectors` vectors.
template <typename Form>
dim3 block_of(int64_t vectors) {
  return block_of_rows((vectors + Form::kKept - 1) / Form::kKept,
                       std::min(kShortRowThreads, Form::kThreads));
}

// [paths]
// What decides which kernel a call takes: its rows, the vectors of a row, how many
// there would be in vectors of kNarrowBytes (none, if rows are not aligned to that, or
// are aligned to more than half a vector), and what the device and the operator have.
struct Call {
  int64_t rows, vectors, narrow_vectors;
  bool has_weight, adds, has_clusters;
};

enum class Path {
  kFewRows,       // a kernel with little code
  kNarrow,        // six narrow vectors a thread, for rows aligned to four bytes only
  kThreeVectors,  // a thread keeps three
  kTwoVectors,
  kCluster,  // eight blocks share a row
  kFourVectors,
  kTwoPasses,  // the row is read twice
};

// The first line that fits.
inline Path path_of(const Call& call) {
  const auto [rows, vectors, narrow, has_weight, adds, has_clusters] = call;
  // Threads come in whole warps, or as powers of two: three vectors each may leave
  // fewer places empty than two.
  const bool three_fit = !adds && 3 * block_of<ThreeVectors>(vectors).x <
                                      2 * block_of<TwoVectors>(vectors).x;
  // clang-format off
  if (rows <= 256 && vectors <= (adds ? 512 : 1024) && has_weight) return Path::kFewRows;
  if (narrow <= NarrowVectors::kVectors && narrow > 0)             return Path::kNarrow;
  if (vectors <= 512 && three_fit)                           return Path::kThreeVectors;
  if (vectors <= 512)                                          return Path::kTwoVectors;
  if (vectors <= 8192 && vectors > 2048 && !adds && has_clusters) return Path::kCluster;
  if (vectors <= 4096)                                        return Path::kFourVectors;
  return                                                             Path::kTwoPasses;
  // clang-format on
}
// [/paths]

// `alignment` is the smallest of the matrices'.
template <bool kAligned, typename T, typename W>
Call call_of(const rms_norm_args<T, W>& args, int alignment, bool adds) {
  constexpr int kNarrowWidth = kNarrowBytes / sizeof(T);
  const bool narrow = !kAligned && kNarrowWidth > 1 && alignment >= kNarrowBytes &&
                      is_vector_aligned(args.weight);
  return {.rows = args.rows,
          .vectors = Columns<kElements<T>, kAligned>::most_vectors(args.hidden),
          .narrow_vectors = narrow ? args.hidden / kNarrowWidth : 0,
          .has_weight = args.weight != nullptr,
          .adds = adds,
          .has_clusters = false};
}

// What a call launches, unless its path is a cluster's.
template <typename T, typename W, typename Added>
struct Launch {
  void (*kernel)(View<const T>, Added, const W*, View<T>, compute_t<T>*,
                 Problem<compute_t<T>>);
  dim3 block;
};

template <typename T, typename W, bool kAligned, typename Added>
Launch<T, W, Added> launch_of(const Call& call) {
  const Path path = path_of(call);
  constexpr int kWidth = kElements<T>;
  constexpr int kNarrowWidth = kNarrowBytes / sizeof(T);
  const auto in_form = [&]<typename Form>(Form) -> Launch<T, W, Added> {
    return {rms_norm_kernel<Form, T, W, kWidth, kAligned, Added>,
            block_of<Form>(call.vectors)};
  };
  if (path == Path::kFewRows) {
    return {rms_norm_few_rows_kernel<T, W, kWidth, kAligned, Added>,
            dim3(kFewRowsThreads)};
  }
  if constexpr (!kAligned && kNarrowWidth > 1) {
    if (path == Path::kNarrow) {
      return {rms_norm_kernel<NarrowVectors, T, W, kNarrowWidth, true, Added>,
              block_of<NarrowVectors>(call.narrow_vectors)};
    }
  }
  if constexpr (std::is_empty_v<Added>) {  // a residual would not fit the registers
    if (path == Path::kThreeVectors) return in_form(ThreeVectors{});
  }
  if (path == Path::kTwoVectors) return in_form(TwoVectors{});
  if (path == Path::kFourVectors) return in_form(FourVectors{});
  return {rms_norm_two_pass_kernel<T, W, kWidth, kAligned, Added>, dim3(kMaxThreads)};
}

#endif  // OPBOOK_GPU

}  // namespace opbook

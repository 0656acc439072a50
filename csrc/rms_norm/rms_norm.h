// RMSNorm: output = input / sqrt(mean(input^2) + eps) * weight, over the last dimension
// (Zhang and Sennrich, "Root Mean Square Layer Normalization", arXiv:1910.07467, eq. 4,
// where eps is 0).
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <type_traits>

#include "../columns.h"
#include "../grid.h"
#include "../l2_cache.h"
#include "../launch.h"
#include "../row_sum.h"

namespace opbook {

// [math] the formula, once, for every device
template <typename acc_t>
OPBOOK_HOST_DEVICE inline acc_t reciprocal_rms(acc_t mean_square, acc_t eps) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  // One instruction instead of two subroutines. HIP has rsqrt for double alone.
  if constexpr (std::is_same_v<acc_t, float>) {
    return rsqrtf(mean_square + eps);
  } else {
    return rsqrt(mean_square + eps);
  }
#else
  return acc_t(1) / std::sqrt(mean_square + eps);
#endif
}
// The sum that add_rms_norm normalizes, rounded as eager's addition rounds, so that the
// norm sees what eager's sees.
template <typename scalar_t>
OPBOOK_HOST_DEVICE inline scalar_t rounded_sum(scalar_t input, scalar_t residual) {
  using acc_t = accumulate_t<scalar_t>;
  return static_cast<scalar_t>(static_cast<acc_t>(input) +
                               static_cast<acc_t>(residual));
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

// The types of input and weight that launchers are compiled for.
#define OPBOOK_FOR_INPUT_AND_WEIGHT(INSTANTIATE) \
  INSTANTIATE(c10::Half, c10::Half);             \
  INSTANTIATE(c10::BFloat16, c10::BFloat16);     \
  INSTANTIATE(float, float);                     \
  INSTANTIATE(double, double);                   \
  INSTANTIATE(c10::Half, float);                 \
  INSTANTIATE(c10::BFloat16, float)

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
template <typename Weight>
__device__ inline Weight ones() {
  Weight vector;
#pragma unroll
  for (auto& element : vector.data) element = 1.0f;
  return vector;
}

// Vector i of the weight, cut as the row is. All rows share the weight, so if the rows
// are not aligned, its vectors are aligned for few of them, and each element is loaded
// by itself.
template <typename Cut, typename weight_t, typename Index>
__device__ inline auto weight_at(const Cut& columns, const weight_t* weight, Index i) {
  using Weight = decltype(columns.elements(weight, i));
  return weight != nullptr ? columns.elements(weight, i) : ones<Weight>();
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

template <typename scalar_t, int kWidth>
__device__ inline Vector<scalar_t, kWidth> rounded_sums(
    Vector<scalar_t, kWidth> input, Vector<scalar_t, kWidth> residual) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    input.data[j] = rounded_sum(input.data[j], residual.data[j]);
  }
  return input;
}
// [/row]

// [kept]
// Calls body(k, i) for the kKept vectors of a thread: i is the place of the k-th.
template <int kKept, typename Body>
__device__ inline void for_each_kept(int first, int step, int vectors, Body body) {
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    if (first + k * step < vectors) body(k, first + k * step);
  }
}

// A thread's share of a row, in registers.
template <typename scalar_t, typename weight_t, int kKept, int kWidth, bool kAligned>
struct KeptRow {
  using acc_t = accumulate_t<scalar_t>;
  using Input = Vector<scalar_t, kWidth>;
  using Weight = Vector<weight_t, kWidth>;

  Columns<kWidth, kAligned> columns;
  int first, step, vectors;  // this thread's first vector, how far to its next, the end
  Packed<Input> inputs[kKept];
  Packed<Weight> weights[kKept];

  __device__ KeptRow(int first, int step, Columns<kWidth, kAligned> columns)
      : columns(columns),
        first(first),
        step(step),
        vectors(static_cast<int>(columns.vectors())) {}

  template <typename Body>
  __device__ void for_each(Body body) const {
    for_each_kept<kKept>(first, step, vectors, body);
  }

  // Vectors that are not whole come last, so that the others are in flight together.
  __device__ void load(const scalar_t* row, Packed<Input>* loaded, bool open) const {
    if (kAligned || open) {
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

  __device__ void load_weight(const weight_t* weight) {
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int i = first + k * step;
      if (!kAligned || i < vectors) weights[k] = pack(weight_at(columns, weight, i));
    }
  }

  __device__ void add(const scalar_t* residual, scalar_t* sum, bool open,
                      const L2Cache& l2) {
    Packed<Input> residuals[kKept];
    load(residual, residuals, open);
    for_each([&](int k, int i) {
      const Input rounded = rounded_sums(inputs[k].unpack(), residuals[k].unpack());
      columns.store(sum, i, rounded, l2);
      inputs[k] = pack(rounded);
    });
  }

  __device__ acc_t sum_of_squares() {
    acc_t sum = 0;
    for_each([&](int k, int i) {
      sum += squares(columns.only_inside(i, inputs[k].unpack()));
    });
    return sum;
  }

  __device__ void store_scaled(scalar_t* row, acc_t scale, const L2Cache& l2) {
    for_each([&](int k, int i) {
      columns.store(row, i, scaled(inputs[k].unpack(), scale, weights[k].unpack()), l2);
    });
  }
};
// [/kept]

// [form]
// How a row is spread over the threads of a block. A multiprocessor is to have room for
// kBlocks blocks of kThreads threads, which decides how many registers a thread gets.
template <int kKeptVectors, int kMostThreads, int kLeastBlocks>
struct Form {
  static constexpr int kKept = kKeptVectors;  // by a thread; 0: the row is read twice
  static constexpr int kThreads = kMostThreads;
  static constexpr int kBlocks = kLeastBlocks;
  static constexpr int kVectors = kKept * kThreads;  // of the longest row
};

// Threads that a multiprocessor has room for, in device code.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 750
constexpr int kResidentThreads = 1024;
#elif defined(__CUDA_ARCH__) && \
    ((__CUDA_ARCH__ > 800 && __CUDA_ARCH__ < 900) || __CUDA_ARCH__ >= 1200)
constexpr int kResidentThreads = 1536;
#else
constexpr int kResidentThreads = 2048;
#endif

constexpr int kShortRowThreads = 256;  // rows share a block of at most so many
using ShortRows = Form<2, 256, 8>;
using ThirdRows = Form<3, 256, 6>;  // where less of it stays empty
using LongRows = Form<4, kMaxThreads, 1>;
using LongerRows = Form<6, 512, 2>;
using AnyRows = Form<0, kMaxThreads, 1>;
// Rows that are aligned to half a vector or a quarter take vectors of that size.
using HalfVectors = Form<6, 384, 3>;
using QuarterVectors = Form<9, 128, 10>;
using LongQuarters = Form<6, 384, 5>;

// Whether the weight takes more registers than the input, or a sum more than one.
template <typename scalar_t, typename weight_t>
constexpr bool is_wide() {
  return sizeof(weight_t) > sizeof(scalar_t) || sizeof(scalar_t) > sizeof(float);
}

// Fewer blocks where a thread needs more registers, as it does for rows that are not
// aligned, or where there is less room. HIP counts the waves of a SIMD instead, of
// which a compute unit has four on CDNA.
template <typename Form, typename scalar_t, typename weight_t, bool kAligned>
constexpr int blocks_at_least() {
  constexpr int kMost = kResidentThreads / Form::kThreads;
  constexpr int kFewer = !kAligned                       ? Form::kBlocks / 2
                         : is_wide<scalar_t, weight_t>() ? Form::kBlocks / 3
                                                         : 0;
  constexpr int kWanted = Form::kBlocks - kFewer;
  constexpr int kBlocks = kWanted < kMost ? kWanted : kMost;
#if defined(__HIP__)
  constexpr int kWaves = kBlocks * Form::kThreads / (4 * kMaxWarpSize);
  return kWaves > 0 ? kWaves : 1;
#else
  return kBlocks;
#endif
}
// [/form]

// [kernel] the threads of one threadIdx.y normalize one row
// [residual]
// For add_rms_norm: what is added to the input first, and where the sum goes.
template <typename scalar_t>
struct Residual {
  const scalar_t* rows;
  int64_t stride;
  scalar_t* sum;
};
struct NoResidual {};
// [/residual]

template <typename Form, typename scalar_t, typename weight_t, int kWidth,
          bool kAligned, typename Added>
__global__ void __launch_bounds__(
    Form::kThreads, (blocks_at_least<Form, scalar_t, weight_t, kAligned>()))
    rms_norm_kernel(const scalar_t* input, int64_t input_stride, Added added,
                    const weight_t* __restrict__ weight, scalar_t* output,
                    int64_t output_stride, accumulate_t<scalar_t>* __restrict__ rrms,
                    int64_t rows, int64_t hidden, accumulate_t<scalar_t> inverse_hidden,
                    accumulate_t<scalar_t> eps, Keep keep) {
  using acc_t = accumulate_t<scalar_t>;
  constexpr bool kAdds = !std::is_empty_v<Added>;

  __shared__ acc_t partial[kMaxThreads / kMinWarpSize];
  const int64_t row = row_of_thread();
  // Threads past the last row have none of it, but they take part in the sum.
  const int64_t length = row < rows ? hidden : 0;
  const scalar_t* x = input + row * input_stride;
  const Columns<kWidth, kAligned> columns(x, length);
  bool open = columns.is_open(input, row, rows, input_stride) && input != output;
  if constexpr (kAdds) {
    open = open && columns.is_open(added.rows, row, rows, added.stride);
  }
  const L2Cache l2(keep);
  const auto scale_of_row = [&](acc_t sum_of_squares) {
    const acc_t scale =
        reciprocal_rms(sum_of_row(sum_of_squares, partial) * inverse_hidden, eps);
    if (rrms != nullptr && threadIdx.x == 0 && row < rows) rrms[row] = scale;
    return scale;
  };

  if constexpr (Form::kKept > 0) {
    KeptRow<scalar_t, weight_t, Form::kKept, kWidth, kAligned> kept(
        threadIdx.x, blockDim.x, columns);
    kept.load(x, kept.inputs, open);
    // An addition needs the registers until the sum is known, and so do many vectors.
    constexpr int kKeptBytes = Form::kKept * kWidth * sizeof(scalar_t);
    constexpr bool kWeightLater = kAdds || kKeptBytes > (kAligned ? 64 : 48);
    if (!kWeightLater) kept.load_weight(weight);
    if constexpr (kAdds) {
      kept.add(added.rows + row * added.stride, added.sum + row * hidden, open, l2);
    }
    const acc_t scale = scale_of_row(kept.sum_of_squares());
    if (kWeightLater) kept.load_weight(weight);
    kept.store_scaled(output + row * output_stride, scale, l2);
  } else {
    const int64_t vectors = columns.vectors();
    acc_t sum_of_squares = 0;
    for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
      auto read = columns.load(x, i, open);
      if constexpr (kAdds) {
        const scalar_t* residual = added.rows + row * added.stride;
        read = rounded_sums(read, columns.load(residual, i, open));
        columns.store(added.sum + row * hidden, i, read, l2);
      }
      sum_of_squares += squares(columns.only_inside(i, read));
    }
    const acc_t scale = scale_of_row(sum_of_squares);
    // Each thread reads again what it has read, or the sums that it wrote, from cache.
    if constexpr (kAdds) x = added.sum + row * hidden, open = false;
    for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
      const auto weights = weight_at(columns, weight, i);
      const auto stored = scaled(columns.load(x, i, open), scale, weights);
      columns.store(output + row * output_stride, i, stored, l2);
    }
  }
}
// [/kernel]

// [few_rows] one row has one block, or one warp
// Up to this many rows, the GPU has room for nearly all blocks at once; for twice as
// many, if a block has half of the threads; for sixteen times as many, if a row has a
// warp.
constexpr int64_t kFewRows = 256;
template <int kThreads>  // of a row
constexpr int kRowsOfBlock = kThreads == kMinWarpSize ? 8 : 1;

// In so short a call, loading the kernel's code takes a part of the time. So these rows
// have a small kernel of their own: it takes only rows with a weight, gives the cache
// no hints, and converts every element once. It has the parameters of rms_norm_kernel,
// and leaves the last one unused.
template <int kThreads, int kKept, typename scalar_t, typename weight_t, int kWidth,
          bool kAligned, typename Added>
__global__ void __launch_bounds__((kThreads * kRowsOfBlock<kThreads>), 1)
    rms_norm_few_rows_kernel(const scalar_t* input, int64_t input_stride, Added added,
                             const weight_t* __restrict__ weight, scalar_t* output,
                             int64_t output_stride,
                             accumulate_t<scalar_t>* __restrict__ rrms, int64_t rows,
                             int64_t hidden, accumulate_t<scalar_t> inverse_hidden,
                             accumulate_t<scalar_t> eps, Keep /*keep*/) {
  using acc_t = accumulate_t<scalar_t>;
  using Input = Vector<scalar_t, kWidth>;
  constexpr bool kAdds = !std::is_empty_v<Added>;

  constexpr bool kShares = kRowsOfBlock<kThreads> > 1;
  const int64_t row = kShares ? row_of_thread() : blockIdx.x;
  const bool has_row = !kShares || row < rows;
  const scalar_t* const from = input + row * input_stride;
  const OneRow<kWidth, kAligned> columns(from, has_row ? hidden : 0);
  const auto for_each_vector = [&](auto body) {
    for_each_kept<kKept>(threadIdx.x, kThreads, columns.vectors(), body);
  };

  acc_t x[kKept][kWidth], sum_of_squares = 0;
  Vector<weight_t, kWidth> weights[kKept];
  for_each_vector([&](int k, int i) {
    Input loaded = columns.elements(from, i);
    weights[k] = columns.elements(weight, i);
    if constexpr (kAdds) {
      const scalar_t* residual = added.rows + row * added.stride;
      loaded = rounded_sums(loaded, columns.elements(residual, i));
      columns.store(added.sum + row * hidden, i, loaded);
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      x[k][j] = static_cast<acc_t>(loaded.data[j]);
      sum_of_squares += x[k][j] * x[k][j];
    }
  });
  if constexpr (kShares) {
    sum_of_squares = warp_sum(sum_of_squares, kThreads);
  } else {
    sum_of_squares = block_sum<kThreads>(sum_of_squares);
  }
  const acc_t scale = reciprocal_rms(sum_of_squares * inverse_hidden, eps);
  if (rrms != nullptr && threadIdx.x == 0 && has_row) rrms[row] = scale;
  for_each_vector([&](int k, int i) {
    Input stored;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const acc_t value = x[k][j] * scale;
      stored.data[j] =
          static_cast<scalar_t>(value * static_cast<acc_t>(weights[k].data[j]));
    }
    columns.store(output + row * output_stride, i, stored);
  });
}
// [/few_rows]

// [cluster] a cluster of blocks shares one row after the other
constexpr int kClusterBlocks = 8;
constexpr int kClusterThreads = 256;
constexpr int kClusterKept = 4;
constexpr int kClusterVectors = kClusterKept * kClusterThreads * kClusterBlocks;
// More rows than this are faster without clusters, where two blocks of another kernel
// fit a multiprocessor. Fewer would leave it half empty at the end.
constexpr int64_t kRowsWithoutClusters = 1024;

// The weight stays in registers for all rows, and the next row is in flight while the
// cluster adds up this one. Three blocks a multiprocessor leave 80 registers a thread,
// two leave 128, for a weight wider than the input.
template <typename scalar_t, typename weight_t, int kWidth, bool kAligned>
__global__ void __launch_bounds__(kClusterThreads,
                                  sizeof(weight_t) > sizeof(scalar_t) ? 2 : 3)
    rms_norm_cluster_kernel(const scalar_t* input, int64_t input_stride,
                            const weight_t* __restrict__ weight, scalar_t* output,
                            int64_t output_stride,
                            accumulate_t<scalar_t>* __restrict__ rrms, int64_t rows,
                            int64_t hidden, accumulate_t<scalar_t> inverse_hidden,
                            accumulate_t<scalar_t> eps, Keep keep) {
  using acc_t = accumulate_t<scalar_t>;

  __shared__ RowSum<acc_t, kClusterBlocks> row_sum;
  row_sum.start();
  const int first = blockIdx.x % kClusterBlocks * blockDim.x + threadIdx.x;
  const int64_t clusters = gridDim.x / kClusterBlocks;
  int64_t row = blockIdx.x / kClusterBlocks;
  // The launcher sees to it that all rows of a cluster are cut in the same places.
  const Columns<kWidth, kAligned> columns(input + row * input_stride, hidden);
  KeptRow<scalar_t, weight_t, kClusterKept, kWidth, kAligned> kept(
      first, kClusterBlocks * blockDim.x, columns);
  Packed<Vector<scalar_t, kWidth>> next[kClusterKept];
  const L2Cache l2(keep);

  const auto is_open = [&](int64_t row) {
    return columns.is_open(input, row, rows, input_stride) && input != output;
  };
  // There are no more clusters than rows.
  kept.load(input + row * input_stride, kept.inputs, is_open(row));
  kept.load_weight(weight);
  for (int turn = 0; row < rows; ++turn, row += clusters) {
    const acc_t sum_of_squares = kept.sum_of_squares();
    const int64_t next_row = row + clusters;
    if (next_row < rows) {
      const scalar_t* x = input + next_row * input_stride;
      const bool open = is_open(next_row);
      // kept.load() would take too many registers here.
      kept.for_each([&](int k, int i) { next[k] = pack(columns.load(x, i, open)); });
    }
    const acc_t scale =
        reciprocal_rms(row_sum.sum(sum_of_squares, turn) * inverse_hidden, eps);
    if (rrms != nullptr && first == 0) rrms[row] = scale;
    kept.store_scaled(output + row * output_stride, scale, l2);
    kept.for_each([&](int k, int) { kept.inputs[k] = next[k]; });
  }
}
// [/cluster]

// A kernel and its block.
template <typename Kernel>
struct Launch {
  Kernel kernel;
  dim3 block;
};

// The block in which a form has rows of `vectors` vectors.
template <typename Form>
dim3 block_of(int64_t vectors) {
  constexpr int kKept = std::max(Form::kKept, 1);
  return block_of_rows((vectors + kKept - 1) / kKept,
                       std::min(kShortRowThreads, Form::kThreads));
}

// How many vectors of a row the threads of that block have room for. Places past the
// row's end stay empty.
template <typename Form>
int places_of(int64_t vectors) {
  return Form::kKept * block_of<Form>(vectors).x;
}

// Which kernel rows of `hidden` elements take, in which form, and with which block.
template <typename scalar_t, typename weight_t, int kWidth, bool kAligned,
          typename Added>
auto rms_norm_form(int64_t rows, int64_t hidden, bool has_weight) {
  constexpr bool kAdds = !std::is_empty_v<Added>;
  constexpr int kBytes = kWidth * sizeof(scalar_t);
  const int64_t vectors = Columns<kWidth, kAligned>::most_vectors(hidden);
  const auto in_form = [&]<typename Form>(Form) {
    return Launch{rms_norm_kernel<Form, scalar_t, weight_t, kWidth, kAligned, Added>,
                  block_of<Form>(vectors)};
  };
  const auto in_few_rows = [&]<int kThreads, int kKept, int kVector>() {
    return Launch{rms_norm_few_rows_kernel<kThreads, kKept, scalar_t, weight_t, kVector,
                                           kAligned, Added>,
                  dim3(kThreads, kRowsOfBlock<kThreads>)};
  };
  constexpr int kWarpKept = kAligned && !kAdds ? 3 : 1;
  if ((kAligned || rows > kFewRows) && rows <= 16 * kFewRows && has_weight &&
      hidden <= kWarpKept * kMinWarpSize * kWidth) {
    return in_few_rows.template operator()<kMinWarpSize, kWarpKept, kWidth>();
  }
  // Of rows that begin anywhere, short ones are read in vectors of one element.
  constexpr int kKept = kAdds ? 1 : 2, kMore = 512;
  constexpr int kFew = kAligned ? kMore / 2 : kMore, kFewWidth = kAligned ? kWidth : 1;
  const bool is_few = hidden <= kKept * kFew * kFewWidth;
  const int64_t few_rows = kAligned && is_few ? 2 * kFewRows : kFewRows;
  if (rows <= few_rows && has_weight && hidden <= kKept * kMore * kWidth) {
    return is_few ? in_few_rows.template operator()<kFew, kKept, kFewWidth>()
                  : in_few_rows.template operator()<kMore, kKept, kWidth>();
  }
  if constexpr (kBytes < kVectorBytes) {
    // With more vectors a thread, few threads would read so short a row.
    if (vectors <= 48) return in_form(ThirdRows{});
    if constexpr (kBytes == kVectorBytes / 2) {
      if (vectors <= HalfVectors::kVectors) return in_form(HalfVectors{});
      if (vectors <= LongRows::kVectors) return in_form(LongRows{});
    } else {
      // Measured: it pays up to so many empty places, if enough threads read a row.
      const int places = places_of<QuarterVectors>(vectors);
      const bool is_full = places - vectors <= places / (kAdds ? 5 : 3);
      if (vectors > 96 && vectors <= QuarterVectors::kVectors && is_full) {
        return in_form(QuarterVectors{});
      }
      if constexpr (!kAdds) {
        if (vectors <= LongQuarters::kVectors) return in_form(LongQuarters{});
      }
    }
    return rms_norm_form<scalar_t, weight_t, kElements<scalar_t>, false, Added>(
        rows, hidden, has_weight);
  } else {
    const bool is_short = vectors <= ShortRows::kVectors;
    if constexpr (!kAdds) {  // in this form a residual would not fit the registers
      if (is_short && places_of<ThirdRows>(vectors) < places_of<ShortRows>(vectors)) {
        return in_form(ThirdRows{});
      }
    }
    if (is_short) return in_form(ShortRows{});
    if constexpr (kAligned && !kAdds && !is_wide<scalar_t, weight_t>()) {
      if (vectors > LongRows::kVectors / 2 && vectors <= LongerRows::kVectors) {
        return in_form(LongerRows{});
      }
    }
    return vectors <= LongRows::kVectors ? in_form(LongRows{}) : in_form(AnyRows{});
  }
}

// Calls launch<kWidth, kAligned>() with the widest vector that all rows are aligned to,
// or for rows that begin anywhere, which is faster where a row has too many narrow
// vectors. `alignments` has those of the matrices.
template <typename scalar_t, typename Launch>
const char* with_width(int64_t hidden, std::initializer_list<int> alignments,
                       const void* weight, const Launch& launch) {
  constexpr int kWidth = kElements<scalar_t>, kHalf = kWidth / 2, kQuarter = kWidth / 4;
  const int bytes = is_vector_aligned(weight) ? std::min(alignments) : 1;
  if (bytes == kVectorBytes) return launch.template operator()<kWidth, true>();
  if constexpr (kHalf > 1) {
    if (bytes == kVectorBytes / 2 && hidden <= kClusterVectors * kHalf) {
      return launch.template operator()<kHalf, true>();
    }
  }
  if constexpr (kQuarter > 1) {
    if (bytes == kVectorBytes / 4 && hidden <= LongQuarters::kVectors * kQuarter) {
      return launch.template operator()<kQuarter, true>();
    }
  }
  return launch.template operator()<kWidth, false>();
}

#endif  // OPBOOK_GPU_COMPILER

}  // namespace opbook

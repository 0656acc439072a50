// What operators over rows share: where the rows of a tensor are, which part of a row a
// thread computes, and on GPUs how the threads of a row exchange what they have found.
// A row is what lies along the last dimension.
#pragma once

#include "portable.h"

namespace starter {

// Rows of a tensor of any strides, also of one that was expanded, which need not be
// copied. `data` is null for an optional tensor that is not there.
template <typename T>
struct Rows {
  static constexpr int kDims = 4;  // in front of the row, where no stride fits several
  const T* data = nullptr;
  int64_t column_stride = 0;
  int dims = 0;
  int64_t sizes[kDims] = {}, strides[kDims] = {};

  STARTER_HOST_DEVICE const T* at(int64_t row) const {
    int64_t offset = 0;
    for (int d = kDims - 1; d >= 0; --d) {  // a GPU indexes no array at run time
      if (d >= dims) continue;
      offset += (d > 0 ? row % sizes[d] : row) * strides[d];
      row /= sizes[d];
    }
    return data + offset;
  }

  // Whether N neighbours in a row can always be read at once.
  template <int N>
  bool is_aligned() const {
    bool result = reinterpret_cast<std::uintptr_t>(data) % (N * sizeof(T)) == 0;
    for (const int64_t stride : strides) result = result && stride % N == 0;
    return data == nullptr || (result && column_stride == 1);
  }
};

// The columns that one thread computes: some at `begin`, and again after each `step`.
struct Share {
  int64_t begin, end, step;
};

template <typename T, int N>
struct alignas(sizeof(T) * N) Together {
  T values[N];
};

// N neighbouring elements of a row, which is aligned for them if N > 1.
template <int N, typename T>
STARTER_HOST_DEVICE Together<T, N> read(const T* row, int64_t column, int64_t stride) {
  if constexpr (N == 1) return {row[column * stride]};
  return *reinterpret_cast<const Together<T, N>*>(row + column);
}

// Rounds N neighbouring elements, and writes them to where they are aligned.
template <typename T, typename C, int N>
STARTER_HOST_DEVICE void write(T* place, Together<C, N> wide) {
  Together<T, N> rounded;
  for (int i = 0; i < N; ++i) rounded.values[i] = static_cast<T>(wide.values[i]);
  *reinterpret_cast<Together<T, N>*>(place) = rounded;
}

// For one row or more, and a CUDA or HIP stream: returns null, or why it failed.
template <typename Args>
const char* launch_rows(const Args& args, void* stream);

#if defined(STARTER_GPU)
// Lanes that run together; only code of the GPU may use it, as the host's pass does not
// know the chip.
#if defined(__HIP__) && defined(__GFX9__)  // such as the MI300
constexpr int kWarpSize = 64;
#else
constexpr int kWarpSize = 32;
#endif
constexpr int kMinWarpSize = 32, kMaxBlock = 512;  // threads

// What the lane whose number differs in the bits of `mask` has: any plain struct.
template <typename T>
__device__ T shuffle_xor(T value, int mask) {
  static_assert(sizeof(T) % sizeof(int) == 0, "a shuffle moves whole words");
  struct Words {
    int values[sizeof(T) / sizeof(int)];
  };
  auto words = __builtin_bit_cast(Words, value);
  for (int& word : words.values) {
#if defined(__HIP__)
    word = __shfl_xor(word, mask, kWarpSize);
#else
    word = __shfl_xor_sync(0xffffffff, word, mask);
#endif
  }
  return __builtin_bit_cast(T, words);
}

// Each of `lanes` neighbours, a power of two, gets all values merged in the same order.
template <typename T, typename Merge>
__device__ T reduce_lanes(T value, int lanes, Merge merge) {
  for (int bit = 1; bit < lanes; bit *= 2) {
    const T other = shuffle_xor(value, bit);
    value = threadIdx.x & bit ? merge(other, value) : merge(value, other);
  }
  return value;
}

// Each thread of a row gets the values of all of them merged. Every thread of the block
// must call it. `merge` takes two values and returns one.
template <typename T, typename Merge>
__device__ T reduce_row(T value, Merge merge) {
  if (blockDim.x <= kWarpSize) return reduce_lanes(value, blockDim.x, merge);
  __shared__ T of_warps[kMaxBlock / kMinWarpSize];
  const int warps = blockDim.x / kWarpSize;
  T* of_row = of_warps + threadIdx.y * warps;
  value = reduce_lanes(value, kWarpSize, merge);
  __syncthreads();  // a call before this one may still be reading
  if (threadIdx.x % kWarpSize == 0) of_row[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  return reduce_lanes(of_row[threadIdx.x % warps], warps, merge);
}

// Merges what the threads of a row have found, and writes the row's results. In the
// last block, a row may not exist: its threads have no columns, but take part.
template <int N, typename Args>
__global__ void __launch_bounds__(kMaxBlock) row_kernel(Args args) {
  const int64_t row = blockIdx.x * int64_t{blockDim.y} + threadIdx.y;
  const int64_t end = row < args.rows ? args.columns : 0;
  const Share share = {int64_t{threadIdx.x} * N, end, int64_t{blockDim.x} * N};
  const auto all = reduce_row(args.template part<N>(row, share), Args::merge);
  if (row < args.rows) args.template write<N>(row, share, all);
}

// The threads along x share a row, and those along y have rows of their own. A thread
// reads once from rows of 32 reads or fewer, and at most four times up to 2048 reads.
template <typename Args>
const char* launch_rows(const Args& args, void* stream) {
  constexpr int kWidth = kVectorBytes / sizeof(typename Args::Element);
  const bool wide = args.columns % kWidth == 0 && args.template is_aligned<kWidth>();
  const int64_t reads = args.columns / (wide ? kWidth : 1);
  unsigned threads = 1;
  while (threads < kMinWarpSize && threads < reads) threads *= 2;
  while (threads < kMaxBlock && threads * 4 < reads) threads *= 2;
  const unsigned rows = threads < 256 ? 256 / threads : 1;
  const auto blocks = static_cast<unsigned>(blocks_for(args.rows, rows));
  const auto kernel = wide ? row_kernel<kWidth, Args> : row_kernel<1, Args>;
  kernel<<<blocks, dim3(threads, rows), 0, static_cast<cudaStream_t>(stream)>>>(args);
  return launch_error();
}
#endif

}  // namespace starter

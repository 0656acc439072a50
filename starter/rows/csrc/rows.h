// What operators over rows share: where the rows of a tensor are, which part of a row a
// thread computes, and on GPUs how the threads of a row exchange what they have found.
// A row is what lies along the last dimension.
#pragma once

#include "vectors.h"

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

#if defined(STARTER_GPU)
// Lanes that run together: 64 on AMD's gfx9 chips, such as the MI300, and else 32. The
// host's pass does not know the chip, so only code of the GPU may use it.
#if defined(__HIP__) && defined(__GFX9__)
constexpr int kWarpSize = 64;
#else
constexpr int kWarpSize = 32;
#endif
constexpr int kMinWarpSize = 32;
constexpr int kMaxBlock = 512;  // threads

// The threads along x share a row, and those along y have rows of their own.
struct RowLaunch {
  dim3 grid, block;
};

// `reads`: how many it takes to read a row. A short row gets as many threads, and
// shares its block with others; a thread of a long row reads four times or more.
inline RowLaunch row_launch(int64_t rows, int64_t reads) {
  unsigned threads = 1;
  while (threads < kMinWarpSize && threads < reads) threads *= 2;
  while (threads < kMaxBlock && threads * 4 < reads) threads *= 2;
  const unsigned rows_per_block = threads < 256 ? 256 / threads : 1;
  const auto blocks = static_cast<unsigned>(blocks_for(rows, rows_per_block));
  return {dim3(blocks), dim3(threads, rows_per_block)};
}

// The row of a thread. In the last block it may not exist: the thread then has no
// columns, but takes part in every exchange.
__device__ inline int64_t row_of_thread() {
  return blockIdx.x * int64_t{blockDim.y} + threadIdx.y;
}

template <int N>
__device__ Share share_of_thread(bool has_row, int64_t columns) {
  return {int64_t{threadIdx.x} * N, has_row ? columns : 0, int64_t{blockDim.x} * N};
}

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

// Each of `lanes` neighbours, a power of two, gets all their values merged, in the same
// order and so with the same rounding.
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
#endif

}  // namespace starter

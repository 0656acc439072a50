// Blocks and grids for kernels on the rows of a matrix.
#pragma once

#include "../portable.h"

namespace opbook {

#if defined(OPBOOK_GPU)

// How many threads a block for `wanted` threads has: whole warps of the widest kind, at
// most kMaxThreads.
inline int threads_for(int64_t wanted) {
  const int64_t threads = (wanted + kMaxWarpSize - 1) / kMaxWarpSize * kMaxWarpSize;
  return static_cast<int>(threads < kMaxThreads ? threads : kMaxThreads);
}

// A block that has a row for each threadIdx.y, and `wanted` threads for each row: whole
// warps, kMaxThreads at most, or a part of a warp, whose size is a power of two. It has
// one row, or as many as fit in `block_threads` threads.
inline dim3 block_of_rows(int64_t wanted, int block_threads) {
  int threads = 1;
  while (threads < wanted && threads < kMinWarpSize) threads *= 2;
  if (wanted > kMinWarpSize) threads = threads_for(wanted);
  return dim3(threads, threads < block_threads ? block_threads / threads : 1);
}

// Blocks for all rows: along x up to the limit, then along y. CUDA limits the number of
// blocks along x, HIP also that of threads.
inline dim3 grid_of_rows(int64_t rows, dim3 block) {
#if defined(__HIP__)
  const int64_t most = (int64_t{1} << 32) / (block.x * block.y) - 1;
#else
  const int64_t most = (int64_t{1} << 31) - 1;
#endif
  const int64_t blocks = (rows + block.y - 1) / block.y;
  const int64_t grid_x = blocks < most ? blocks : most;
  return dim3(grid_x, (blocks + grid_x - 1) / grid_x);
}

// The row of this block in such a grid, or of this thread where a block has several
// rows. The last of them may lie past the last row.
__device__ inline int64_t row_of_block() {
  return blockIdx.x + static_cast<int64_t>(gridDim.x) * blockIdx.y;
}

__device__ inline int64_t row_of_thread() {
  return row_of_block() * blockDim.y + threadIdx.y;
}

#endif  // OPBOOK_GPU

}  // namespace opbook

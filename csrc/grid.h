// Blocks and grids for kernels on the rows of a matrix.
#pragma once

#include "portable.h"

namespace opbook {

#if defined(OPBOOK_GPU_COMPILER)

// A block for `wanted` threads, as far as one reaches: whole warps of the widest kind.
inline int threads_for(int64_t wanted) {
  const int64_t threads = (wanted + kMaxWarpSize - 1) / kMaxWarpSize * kMaxWarpSize;
  return static_cast<int>(threads < kMaxThreads ? threads : kMaxThreads);
}

// A block whose rows, one for each threadIdx.y, have `wanted` threads each, as far as a
// block reaches: whole warps, or a part of one, whose size is a power of two. It has at
// most `block_threads`, or one row.
inline dim3 block_of_rows(int64_t wanted, int block_threads) {
  int threads = 1;
  while (threads < wanted && threads < kMinWarpSize) threads *= 2;
  if (wanted > kMinWarpSize) threads = threads_for(wanted);
  return dim3(threads, threads < block_threads ? block_threads / threads : 1);
}

// Blocks for all rows: along x as far as a grid reaches, then y. CUDA counts blocks,
// HIP also threads.
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
// rows. The last ones may lie behind the last row.
__device__ inline int64_t row_of_block() {
  return blockIdx.x + static_cast<int64_t>(gridDim.x) * blockIdx.y;
}

__device__ inline int64_t row_of_thread() {
  return row_of_block() * blockDim.y + threadIdx.y;
}

#endif  // OPBOOK_GPU_COMPILER

}  // namespace opbook

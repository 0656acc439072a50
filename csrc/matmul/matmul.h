// matmul: output = left @ right, for two matrices. The same product twice on the GPU:
// a naive kernel, then one whose blocks share what they load.
#pragma once

#include "../portable.h"

namespace opbook {

// Any strides, so that a transposed matrix needs no copy.
template <typename scalar_t>
struct Matrix {
  const scalar_t* data;
  int64_t row_stride, column_stride;

  OPBOOK_HOST_DEVICE accumulate_t<scalar_t> at(int64_t row, int64_t column) const {
    return static_cast<accumulate_t<scalar_t>>(
        data[row * row_stride + column * column_stride]);
  }
};

// Multiplies [rows, inner] by [inner, columns] into a contiguous [rows, columns], all
// in device memory. Returns null, or the runtime's words for a launch error.
template <typename scalar_t>
const char* launch_matmul(const scalar_t* left, int64_t left_row_stride,
                          int64_t left_column_stride, const scalar_t* right,
                          int64_t right_row_stride, int64_t right_column_stride,
                          scalar_t* output, int64_t rows, int64_t inner,
                          int64_t columns, void* stream);

// The same with the naive kernel, to compare with.
template <typename scalar_t>
const char* launch_matmul_naive(const scalar_t* left, int64_t left_row_stride,
                                int64_t left_column_stride, const scalar_t* right,
                                int64_t right_row_stride, int64_t right_column_stride,
                                scalar_t* output, int64_t rows, int64_t inner,
                                int64_t columns, void* stream);

// A block of kTile x kTile threads computes a tile of the output of that size.
constexpr int kTile = 16;

#if defined(OPBOOK_GPU_COMPILER)

// Tiles are numbered row by row along x, where a grid may have 2^31 - 1 blocks.
struct Element {
  int64_t row, column;
};

__device__ inline Element element_of_thread(int64_t columns) {
  const int64_t tiles_in_row = (columns + kTile - 1) / kTile;
  return {blockIdx.x / tiles_in_row * kTile + threadIdx.y,
          blockIdx.x % tiles_in_row * kTile + threadIdx.x};
}

// Version 1: each thread reads a row and a column from global memory.
template <typename scalar_t>
__global__ void __launch_bounds__(kTile* kTile)
    matmul_naive_kernel(Matrix<scalar_t> left, Matrix<scalar_t> right,
                        scalar_t* __restrict__ output, int64_t rows, int64_t inner,
                        int64_t columns) {
  const auto [row, column] = element_of_thread(columns);
  if (row >= rows || column >= columns) return;
  accumulate_t<scalar_t> sum = 0;
  for (int64_t k = 0; k < inner; ++k) sum += left.at(row, k) * right.at(k, column);
  output[row * columns + column] = static_cast<scalar_t>(sum);
}

// [tiled] version 2: a block loads two tiles at a time and reads each value kTile times
template <typename scalar_t>
__global__ void __launch_bounds__(kTile* kTile)
    matmul_tiled_kernel(Matrix<scalar_t> left, Matrix<scalar_t> right,
                        scalar_t* __restrict__ output, int64_t rows, int64_t inner,
                        int64_t columns) {
  using acc_t = accumulate_t<scalar_t>;
  __shared__ acc_t left_tile[kTile][kTile];
  __shared__ acc_t right_tile[kTile][kTile];
  const int x = threadIdx.x, y = threadIdx.y;
  const auto [row, column] = element_of_thread(columns);

  acc_t sum = 0;
  for (int64_t first = 0; first < inner; first += kTile) {
    // Zeros beyond the edge: every thread stays, because every thread has to reach the
    // barriers.
    const bool has_left = row < rows && first + x < inner;
    const bool has_right = column < columns && first + y < inner;
    left_tile[y][x] = has_left ? left.at(row, first + x) : acc_t(0);
    right_tile[y][x] = has_right ? right.at(first + y, column) : acc_t(0);
    __syncthreads();  // the tiles are complete
#pragma unroll
    for (int k = 0; k < kTile; ++k) sum += left_tile[y][k] * right_tile[k][x];
    __syncthreads();  // and all have read them before the next two overwrite them
  }
  if (row < rows && column < columns) {
    output[row * columns + column] = static_cast<scalar_t>(sum);
  }
}
// [/tiled]

#endif  // OPBOOK_GPU_COMPILER

}  // namespace opbook

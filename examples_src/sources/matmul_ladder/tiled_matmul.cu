// The product of two contiguous matrices, with tiles in shared memory.
#include "../../../csrc/portable.h"

namespace opbook {

// A block of kTile x kTile threads computes a tile of the output of that size.
constexpr int kTile = 16;

// [tiled] a block loads two tiles at a time, and reads each value kTile times
template <typename T>
__global__ void __launch_bounds__(kTile* kTile)
    tiled_matmul(const T* left, const T* right, T* output, int64_t rows, int64_t inner,
                 int64_t columns) {
  __shared__ float left_tile[kTile][kTile];
  __shared__ float right_tile[kTile][kTile];
  const int x = threadIdx.x, y = threadIdx.y;
  const int64_t row = int64_t{blockIdx.y} * kTile + y;
  const int64_t column = int64_t{blockIdx.x} * kTile + x;

  float sum = 0;
  for (int64_t first = 0; first < inner; first += kTile) {
    // Zeros beyond the edge: every thread stays, because every thread has to reach the
    // barriers.
    const bool has_left = row < rows && first + x < inner;
    const bool has_right = column < columns && first + y < inner;
    left_tile[y][x] = has_left ? float(left[row * inner + first + x]) : 0.0f;
    right_tile[y][x] = has_right ? float(right[(first + y) * columns + column]) : 0.0f;
    __syncthreads();  // the tiles are complete
#pragma unroll
    for (int k = 0; k < kTile; ++k) sum += left_tile[y][k] * right_tile[k][x];
    __syncthreads();  // and all have read them before the next two overwrite them
  }
  if (row < rows && column < columns) output[row * columns + column] = T(sum);
}
// [/tiled]

const char* launch_tiled_matmul(const c10::BFloat16* left, const c10::BFloat16* right,
                                c10::BFloat16* output, int64_t rows, int64_t inner,
                                int64_t columns, void* stream) {
  const dim3 tiles((columns + kTile - 1) / kTile, (rows + kTile - 1) / kTile);
  const dim3 threads(kTile, kTile);
  tiled_matmul<<<tiles, threads, 0, static_cast<cudaStream_t>(stream)>>>(
      left, right, output, rows, inner, columns);
  return launch_error();
}

}  // namespace opbook

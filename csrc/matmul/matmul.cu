// The GPU launchers of matmul: raw pointers and a stream, no PyTorch.
#include "matmul.h"

namespace opbook {

namespace {

dim3 grid_for(int64_t rows, int64_t columns) {
  return dim3((rows + kTile - 1) / kTile * ((columns + kTile - 1) / kTile));
}

}  // namespace

template <typename scalar_t>
const char* launch_matmul(const scalar_t* left, int64_t left_row_stride,
                          int64_t left_column_stride, const scalar_t* right,
                          int64_t right_row_stride, int64_t right_column_stride,
                          scalar_t* output, int64_t rows, int64_t inner,
                          int64_t columns, void* stream) {
  const Matrix<scalar_t> a{left, left_row_stride, left_column_stride};
  const Matrix<scalar_t> b{right, right_row_stride, right_column_stride};
  const dim3 threads(kTile, kTile);
  matmul_tiled_kernel<scalar_t>
      <<<grid_for(rows, columns), threads, 0, static_cast<gpuStream_t>(stream)>>>(
          a, b, output, rows, inner, columns);
  return launch_error();
}

template <typename scalar_t>
const char* launch_matmul_naive(const scalar_t* left, int64_t left_row_stride,
                                int64_t left_column_stride, const scalar_t* right,
                                int64_t right_row_stride, int64_t right_column_stride,
                                scalar_t* output, int64_t rows, int64_t inner,
                                int64_t columns, void* stream) {
  const Matrix<scalar_t> a{left, left_row_stride, left_column_stride};
  const Matrix<scalar_t> b{right, right_row_stride, right_column_stride};
  const dim3 threads(kTile, kTile);
  matmul_naive_kernel<scalar_t>
      <<<grid_for(rows, columns), threads, 0, static_cast<gpuStream_t>(stream)>>>(
          a, b, output, rows, inner, columns);
  return launch_error();
}

#define OPBOOK_INSTANTIATE(launcher, scalar_t)                                      \
  template const char* launcher(const scalar_t*, int64_t, int64_t, const scalar_t*, \
                                int64_t, int64_t, scalar_t*, int64_t, int64_t,      \
                                int64_t, void*)
OPBOOK_INSTANTIATE(launch_matmul, c10::Half);
OPBOOK_INSTANTIATE(launch_matmul, c10::BFloat16);
OPBOOK_INSTANTIATE(launch_matmul, float);
OPBOOK_INSTANTIATE(launch_matmul, double);
OPBOOK_INSTANTIATE(launch_matmul_naive, c10::Half);
OPBOOK_INSTANTIATE(launch_matmul_naive, c10::BFloat16);
OPBOOK_INSTANTIATE(launch_matmul_naive, float);
OPBOOK_INSTANTIATE(launch_matmul_naive, double);
#undef OPBOOK_INSTANTIATE

}  // namespace opbook

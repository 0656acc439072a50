// The GPU launcher. nvcc compiles this file for CUDA, HIP's clang for ROCm. It knows
// raw pointers and a stream; tensors, checks and registration live in rms_norm_op.cpp.
#include <algorithm>

#include "rms_norm.h"

namespace opbook {

namespace {

constexpr int64_t kMaxGridX = 2147483647;  // 2^31 - 1, on CUDA and on HIP
constexpr int kColumnThreads = 256;
constexpr int64_t kFewRows = 512;

// That many threads, up to the limit, in whole warps of the widest kind.
int threads_for(int64_t wanted) {
  const int64_t warps = (wanted + kMaxWarpSize - 1) / kMaxWarpSize;
  return static_cast<int>(std::min<int64_t>(kMaxThreads, warps * kMaxWarpSize));
}

dim3 grid_of_rows(int64_t rows) {
  const int64_t grid_x = std::min(rows, kMaxGridX);
  return dim3(grid_x, (rows + grid_x - 1) / grid_x);
}

// Whether every row of a matrix begins on a 16-byte boundary.
template <typename scalar_t>
bool rows_are_aligned(const scalar_t* data, int64_t stride, int64_t rows) {
  return is_vector_aligned(data) &&
         (rows == 1 || stride * sizeof(scalar_t) % kVectorBytes == 0);
}

}  // namespace

// [launch]
template <typename scalar_t, typename weight_t>
const char* launch_rms_norm(const scalar_t* input, int64_t input_stride,
                            const weight_t* weight, scalar_t* output,
                            int64_t output_stride, accumulate_t<scalar_t>* rrms,
                            int64_t rows, int64_t hidden, double eps, void* stream) {
  constexpr int kWidth = kVectorBytes / sizeof(scalar_t);
  const bool vectorized = hidden % kWidth == 0 && is_vector_aligned(weight) &&
                          rows_are_aligned(input, input_stride, rows) &&
                          rows_are_aligned(output, output_stride, rows);
  const int64_t vectors = vectorized ? hidden / kWidth : hidden;
  const bool keep = vectorized && vectors <= kKept * kMaxThreads;
  const auto kernel = keep         ? rms_norm_kernel<scalar_t, weight_t, kWidth, true>
                      : vectorized ? rms_norm_kernel<scalar_t, weight_t, kWidth, false>
                                   : rms_norm_kernel<scalar_t, weight_t, 1, false>;
  // Few rows leave the GPU idle: then many threads with little each are faster.
  const bool few_threads = keep && rows > kFewRows;
  const int threads =
      threads_for(few_threads ? (vectors + kKept - 1) / kKept : vectors);
  kernel<<<grid_of_rows(rows), threads, 0, static_cast<gpuStream_t>(stream)>>>(
      input, input_stride, weight, output, output_stride, rrms, rows, hidden,
      static_cast<accumulate_t<scalar_t>>(eps));
  return launch_error();
}
// [/launch]

template <typename scalar_t, typename weight_t>
const char* launch_rms_norm_input_gradient(const scalar_t* grad, int64_t grad_stride,
                                           const scalar_t* input, int64_t input_stride,
                                           const weight_t* weight,
                                           const accumulate_t<scalar_t>* rrms,
                                           scalar_t* grad_input, int64_t rows,
                                           int64_t hidden, void* stream) {
  constexpr int kWidth = kVectorBytes / sizeof(scalar_t);
  const bool vectorized = hidden % kWidth == 0 && is_vector_aligned(weight) &&
                          rows_are_aligned(grad, grad_stride, rows) &&
                          rows_are_aligned(input, input_stride, rows) &&
                          rows_are_aligned(grad_input, hidden, rows);
  const auto kernel = vectorized
                          ? rms_norm_input_gradient_kernel<scalar_t, weight_t, kWidth>
                          : rms_norm_input_gradient_kernel<scalar_t, weight_t, 1>;
  const int threads = threads_for(vectorized ? hidden / kWidth : hidden);
  kernel<<<grid_of_rows(rows), threads, 0, static_cast<gpuStream_t>(stream)>>>(
      grad, grad_stride, input, input_stride, weight, rrms, grad_input, rows, hidden);
  return launch_error();
}

template <typename scalar_t>
const char* launch_rms_norm_weight_gradient(const scalar_t* grad, int64_t grad_stride,
                                            const scalar_t* input, int64_t input_stride,
                                            const accumulate_t<scalar_t>* rrms,
                                            accumulate_t<scalar_t>* partial,
                                            accumulate_t<scalar_t>* grad_weight,
                                            int64_t rows, int64_t hidden,
                                            void* stream) {
  const int64_t chunks = weight_gradient_chunks(rows);
  const int64_t blocks = (hidden + kColumnThreads - 1) / kColumnThreads;
  const auto gpu_stream = static_cast<gpuStream_t>(stream);
  rms_norm_weight_gradient_kernel<scalar_t>
      <<<dim3(blocks, chunks), kColumnThreads, 0, gpu_stream>>>(
          grad, grad_stride, input, input_stride, rrms, partial, rows, hidden);
  if (const char* error = launch_error()) return error;
  sum_chunks_kernel<accumulate_t<scalar_t>>
      <<<blocks, kColumnThreads, 0, gpu_stream>>>(partial, grad_weight, chunks, hidden);
  return launch_error();
}

#define OPBOOK_INSTANTIATE_FOR_WEIGHT(scalar_t, weight_t)                           \
  template const char* launch_rms_norm(const scalar_t*, int64_t, const weight_t*,   \
                                       scalar_t*, int64_t, accumulate_t<scalar_t>*, \
                                       int64_t, int64_t, double, void*);            \
  template const char* launch_rms_norm_input_gradient(                              \
      const scalar_t*, int64_t, const scalar_t*, int64_t, const weight_t*,          \
      const accumulate_t<scalar_t>*, scalar_t*, int64_t, int64_t, void*)
#define OPBOOK_INSTANTIATE(scalar_t)                                                   \
  OPBOOK_INSTANTIATE_FOR_WEIGHT(scalar_t, scalar_t);                                   \
  template const char* launch_rms_norm_weight_gradient(                                \
      const scalar_t*, int64_t, const scalar_t*, int64_t,                              \
      const accumulate_t<scalar_t>*, accumulate_t<scalar_t>*, accumulate_t<scalar_t>*, \
      int64_t, int64_t, void*)
OPBOOK_INSTANTIATE(c10::Half);
OPBOOK_INSTANTIATE(c10::BFloat16);
OPBOOK_INSTANTIATE(float);
OPBOOK_INSTANTIATE(double);
OPBOOK_INSTANTIATE_FOR_WEIGHT(c10::Half, float);
OPBOOK_INSTANTIATE_FOR_WEIGHT(c10::BFloat16, float);

}  // namespace opbook

// Kernel pitfalls, each beside its cure. nvcc and HIP's clang compile this file, and
// tests/emulated.py runs it on the CPU.
#include <torch/headeronly/core/TensorAccessor.h>

#include "../plain_kernel/block_sum.h"

namespace pitfalls {

using namespace plain;
constexpr int kMaxThreads = 1024;

// ---- A loop that waits for the thread's turn

// [serial]
// One block a row. Each thread walks the row until it meets its own number.
__global__ void twice_serial_kernel(const float* input, float* output,
                                    int64_t columns) {
  const int64_t row = blockIdx.x * columns;
  for (int64_t i = 0; i < columns; ++i) {
    if (i == threadIdx.x) output[row + i] = 2 * input[row + i];
  }
}
// [/serial]

// [stride]
// One block a row. Each thread starts at its number and moves on by a block.
__global__ void twice_stride_kernel(const float* input, float* output,
                                    int64_t columns) {
  const int64_t row = blockIdx.x * columns;
  for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
    output[row + i] = 2 * input[row + i];
  }
}
// [/stride]

const char* launch_twice_serial(const float* input, float* output, int64_t rows,
                                int64_t columns, void* stream) {
  twice_serial_kernel<<<rows, kMaxThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      input, output, columns);
  return launch_error();
}

const char* launch_twice_stride(const float* input, float* output, int64_t rows,
                                int64_t columns, void* stream) {
  twice_stride_kernel<<<rows, kMaxThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      input, output, columns);
  return launch_error();
}

// ---- A sum that all threads share

constexpr int kSumThreads = 256;

__device__ inline int64_t first_element() {
  return threadIdx.x + static_cast<int64_t>(blockDim.x) * blockIdx.x;
}
__device__ inline int64_t elements_apart() {
  return static_cast<int64_t>(blockDim.x) * gridDim.x;
}

// [race]
// Pointer is float* or volatile float*. Two threads read the same old total.
template <typename Pointer>
__global__ void sum_race_kernel(const float* input, int64_t count, Pointer total) {
  for (int64_t i = first_element(); i < count; i += elements_apart()) {
    *total = *total + input[i];
  }
}
// [/race]

// [shared]
// A block adds up in shared memory. Each halving reads what other threads wrote.
template <bool kBarriers>
__global__ void sum_shared_kernel(const float* input, int64_t count, float* partial) {
  __shared__ float sums[kSumThreads];
  float sum = 0;  // in a register, which no other thread can touch
  for (int64_t i = first_element(); i < count; i += elements_apart()) sum += input[i];
  sums[threadIdx.x] = sum;
  if (kBarriers) __syncthreads();
  for (unsigned half = kSumThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    if (kBarriers) __syncthreads();
  }
  if (threadIdx.x == 0) partial[blockIdx.x] = sums[0];
}
// [/shared]

// [finish]
// The blocks' sums, added by one block in a second launch: its start is the barrier
// between blocks, and block_sum has the barriers inside one.
__global__ void sum_finish_kernel(const float* partial, int64_t blocks, float* total) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < blocks; i += blockDim.x) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *total = sum;
}
// [/finish]

const char* launch_sum_race(const float* input, int64_t count, float* total,
                            int64_t blocks, void* stream) {
  sum_race_kernel<float*>
      <<<blocks, kSumThreads, 0, static_cast<cudaStream_t>(stream)>>>(input, count,
                                                                      total);
  return launch_error();
}

const char* launch_sum_volatile(const float* input, int64_t count, float* total,
                                int64_t blocks, void* stream) {
  sum_race_kernel<volatile float*>
      <<<blocks, kSumThreads, 0, static_cast<cudaStream_t>(stream)>>>(input, count,
                                                                      total);
  return launch_error();
}

const char* launch_sum_no_barriers(const float* input, int64_t count, float* partial,
                                   float* total, int64_t blocks, void* stream) {
  sum_shared_kernel<false>
      <<<blocks, kSumThreads, 0, static_cast<cudaStream_t>(stream)>>>(input, count,
                                                                      partial);
  sum_finish_kernel<<<1, kSumThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      partial, blocks, total);
  return launch_error();
}

const char* launch_sum_barriers(const float* input, int64_t count, float* partial,
                                float* total, int64_t blocks, void* stream) {
  sum_shared_kernel<true>
      <<<blocks, kSumThreads, 0, static_cast<cudaStream_t>(stream)>>>(input, count,
                                                                      partial);
  sum_finish_kernel<<<1, kSumThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      partial, blocks, total);
  return launch_error();
}

#if defined(__CUDACC__) || defined(__HIPCC__)  // the emulator has no atomics

// [atomic]
// No addition is lost. Each one rounds, in an order that changes from run to run.
__global__ void sum_atomic_kernel(const float* input, int64_t count, float* total) {
  for (int64_t i = first_element(); i < count; i += elements_apart()) {
    atomicAdd(total, input[i]);
  }
}
// [/atomic]

const char* launch_sum_atomic(const float* input, int64_t count, float* total,
                              int64_t blocks, void* stream) {
  sum_atomic_kernel<<<blocks, kSumThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      input, count, total);
  return launch_error();
}

#endif

// ---- Indexes of 32 bits, and threads far apart in memory

// [accessor]
// A pointer with sizes and strides, passed to the kernel by value. index_t is the type
// of its sizes, its strides, and every product of a stride and an index.
template <typename index_t>
using Matrix = torch::headeronly::HeaderOnlyGenericPackedTensorAccessor<
    const float, 2, torch::headeronly::DefaultPtrTraits, index_t>;

template <typename index_t>
__global__ void row_sums_kernel(Matrix<index_t> input, float* output) {
  float sum = 0;
  for (index_t column = threadIdx.x; column < input.size(1); column += blockDim.x) {
    sum += input[blockIdx.x][column];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) output[blockIdx.x] = sum;
}
// [/accessor]

// [uncoalesced]
// One thread a row: neighbouring threads read addresses that are a whole row apart.
__global__ void row_sums_thread_kernel(Matrix<int64_t> input, float* output) {
  const int64_t row = first_element();
  if (row >= input.size(0)) return;
  float sum = 0;
  for (int64_t column = 0; column < input.size(1); ++column) sum += input[row][column];
  output[row] = sum;
}
// [/uncoalesced]

template <typename index_t>
const char* row_sums(const float* input, int64_t rows, int64_t columns,
                     int64_t row_stride, float* output, void* stream) {
  const int64_t sizes[] = {rows, columns}, strides[] = {row_stride, 1};
  row_sums_kernel<index_t><<<rows, kSumThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      Matrix<index_t>(input, sizes, strides), output);
  return launch_error();
}

const char* launch_row_sums_int32(const float* input, int64_t rows, int64_t columns,
                                  int64_t row_stride, float* output, void* stream) {
  return row_sums<int32_t>(input, rows, columns, row_stride, output, stream);
}

const char* launch_row_sums_int64(const float* input, int64_t rows, int64_t columns,
                                  int64_t row_stride, float* output, void* stream) {
  return row_sums<int64_t>(input, rows, columns, row_stride, output, stream);
}

const char* launch_row_sums_thread(const float* input, int64_t rows, int64_t columns,
                                   int64_t row_stride, float* output, void* stream) {
  const int64_t sizes[] = {rows, columns}, strides[] = {row_stride, 1};
  const int64_t blocks = (rows + kSumThreads - 1) / kSumThreads;
  row_sums_thread_kernel<<<blocks, kSumThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      Matrix<int64_t>(input, sizes, strides), output);
  return launch_error();
}

}  // namespace pitfalls

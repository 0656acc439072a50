// What an operator owes the CUDA runtime, each beside the code that forgets it.
// nvcc and HIP's clang compile this file, and tests/emulated.py runs part of it on the
// CPU. The bindings, right and wrong, are in cuda_behaviour.py.
#include <cstdint>

#if defined(__HIP__)
#include <hip/hip_runtime.h>
#define cudaStream_t hipStream_t
#define cudaDeviceSynchronize hipDeviceSynchronize
#define cudaGetLastError hipGetLastError
#define cudaGetErrorString hipGetErrorString
#define cudaSuccess hipSuccess
#endif

namespace behaviour {

constexpr int64_t kThreads = 256;

int64_t blocks_for(int64_t count) { return (count + kThreads - 1) / kThreads; }

// Null, or why the last kernel could not be launched.
const char* launch_error() {
  const auto status = cudaGetLastError();
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

// ---- Indexes of 32 bits and of 64

// [index]
// One thread an element. `index_t` is int where the author thought of small tensors.
template <typename index_t>
__global__ void scale_kernel(const float* input, float* output, int64_t count,
                             float factor) {
  const index_t i = static_cast<index_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) output[i] = input[i] * factor;
}
// [/index]

const char* launch_scale(const float* input, float* output, int64_t count, float factor,
                         void* stream) {
  scale_kernel<int64_t>
      <<<blocks_for(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
          input, output, count, factor);
  return launch_error();
}

const char* launch_scale_int(const float* input, float* output, int64_t count,
                             float factor, void* stream) {
  scale_kernel<int>
      <<<blocks_for(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
          input, output, count, factor);
  return launch_error();
}

// ---- Loads of 16 bytes

constexpr int kWidth = 4;
struct alignas(16) Floats {
  float data[kWidth];
};

__global__ void scale_vectors_kernel(const Floats* input, Floats* output,
                                     int64_t vectors, float factor) {
  const int64_t i = threadIdx.x + static_cast<int64_t>(blockDim.x) * blockIdx.x;
  if (i >= vectors) return;
  Floats values = input[i];
  for (float& value : values.data) value *= factor;
  output[i] = values;
}

// [vectors]
const char* launch_scale_unaligned(const float* input, float* output, int64_t count,
                                   float factor, void* stream) {
  const int64_t vectors = count / kWidth;
  scale_vectors_kernel<<<blocks_for(vectors), kThreads, 0,
                         static_cast<cudaStream_t>(stream)>>>(
      reinterpret_cast<const Floats*>(input), reinterpret_cast<Floats*>(output),
      vectors, factor);
  return launch_error();
}

const char* launch_scale_aligned(const float* input, float* output, int64_t count,
                                 float factor, void* stream) {
  const auto aligned = [](const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % alignof(Floats) == 0;
  };
  const bool vectorized = count % kWidth == 0 && aligned(input) && aligned(output);
  const auto launch = vectorized ? launch_scale_unaligned : launch_scale;
  return launch(input, output, count, factor, stream);
}
// [/vectors]

// ---- A launch that the device refuses

// [threads]
const char* launch_scale_unchecked(const float* input, float* output, int64_t count,
                                   float factor, int64_t threads, void* stream) {
  const int64_t blocks = (count + threads - 1) / threads;
  scale_kernel<int64_t><<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(
      input, output, count, factor);
  return nullptr;
}

const char* launch_scale_checked(const float* input, float* output, int64_t count,
                                 float factor, int64_t threads, void* stream) {
  const int64_t blocks = (count + threads - 1) / threads;
  scale_kernel<int64_t><<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(
      input, output, count, factor);
  return launch_error();
}
// [/threads]

// ---- A factor that stays on the device

__global__ void scale_by_kernel(const float* input, float* output, int64_t count,
                                const float* factor) {
  const int64_t i = threadIdx.x + static_cast<int64_t>(blockDim.x) * blockIdx.x;
  if (i < count) output[i] = input[i] * *factor;
}

const char* launch_scale_by(const float* input, float* output, int64_t count,
                            const float* factor, void* stream) {
  scale_by_kernel<<<blocks_for(count), kThreads, 0,
                    static_cast<cudaStream_t>(stream)>>>(input, output, count, factor);
  return launch_error();
}

// ---- Sums over rows

// [fixed]
// A thread adds `chunk` rows of its column up, from the first to the last.
__global__ void column_sums_kernel(const float* input, int64_t rows, int64_t columns,
                                   int64_t chunk, float* sums) {
  const int64_t column = threadIdx.x + static_cast<int64_t>(blockDim.x) * blockIdx.x;
  if (column >= columns) return;
  const int64_t first = blockIdx.y * chunk;
  const int64_t end = first + chunk < rows ? first + chunk : rows;
  float sum = 0;
  for (int64_t row = first; row < end; ++row) sum += input[row * columns + column];
  sums[blockIdx.y * columns + column] = sum;
}

// The sums of the chunks are rows too: the same kernel adds them up.
const char* launch_column_sums(const float* input, int64_t rows, int64_t columns,
                               float* partial, int64_t chunks, float* sums,
                               void* stream) {
  const int64_t blocks = blocks_for(columns), chunk = (rows + chunks - 1) / chunks;
  column_sums_kernel<<<dim3(blocks, chunks), kThreads, 0,
                       static_cast<cudaStream_t>(stream)>>>(input, rows, columns, chunk,
                                                            partial);
  if (const char* error = launch_error()) return error;
  column_sums_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      partial, chunks, columns, chunks, sums);
  return launch_error();
}
// [/fixed]

#if defined(__HIPCC__) || defined(__CUDACC__)  // the emulator has no queue, no atomics

const char* launch_scale_by_and_wait(const float* input, float* output, int64_t count,
                                     const float* factor, void* stream) {
  if (const char* error = launch_scale_by(input, output, count, factor, stream)) {
    return error;
  }
  const auto status = cudaDeviceSynchronize();  // to report errors of the kernel
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

// [atomic]
__global__ void column_sums_atomic_kernel(const float* input, int64_t rows,
                                          int64_t columns, float* sums) {
  const int64_t i = threadIdx.x + static_cast<int64_t>(blockDim.x) * blockIdx.x;
  if (i < rows * columns) atomicAdd(&sums[i % columns], input[i]);
}
// [/atomic]

// `sums` begins as zeros.
const char* launch_column_sums_atomic(const float* input, int64_t rows, int64_t columns,
                                      float* sums, void* stream) {
  column_sums_atomic_kernel<<<blocks_for(rows * columns), kThreads, 0,
                              static_cast<cudaStream_t>(stream)>>>(input, rows, columns,
                                                                   sums);
  return launch_error();
}

#endif

}  // namespace behaviour

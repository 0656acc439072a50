// RMSNorm of bf16 rows, from the naive kernel to one that keeps up with a copy, one
// change at a time. nvcc and HIP's clang compile this file, and tests/emulated.py runs
// it on the CPU. Rows are contiguous; a row has up to 16384 elements, a multiple of 8.
#include "../plain_kernel/block_sum.h"

namespace fast {

using namespace plain;
using bf16 = c10::BFloat16;

constexpr int kRowsABlock = 128;  // of the first version, whose threads have a row each
constexpr int kThreads = 512;     // that share a row, until version 6
constexpr int kVectors = 4;       // of a thread, from version 6 on
constexpr int kWidth = kVectorBytes / sizeof(bf16);
#if defined(__HIP__)
constexpr int kWidestWarp = 64;  // host code knows no chip
#else
constexpr int kWidestWarp = 32;
#endif
constexpr int kMaxHidden = kThreads * kVectors * kWidth;

__device__ inline float reciprocal_rms(float sum_of_squares, int hidden, float eps) {
  return 1 / std::sqrt(sum_of_squares / hidden + eps);
}

// What every launch costs: a kernel that does nothing.
__global__ void nothing(const bf16*, const bf16*, bf16*, int64_t, int, float) {}

// [thread]
__global__ void thread_a_row(const bf16* __restrict__ x, const bf16* __restrict__ w,
                             bf16* __restrict__ y, int64_t rows, int hidden,
                             float eps) {
  const int64_t row = threadIdx.x + static_cast<int64_t>(kRowsABlock) * blockIdx.x;
  if (row >= rows) return;
  x += row * hidden;
  y += row * hidden;
  float sum = 0;
  for (int i = 0; i < hidden; ++i) {
    const float value = x[i];
    sum += value * value;
  }
  const float scale = reciprocal_rms(sum, hidden, eps);
  for (int i = 0; i < hidden; ++i) y[i] = x[i] * scale * w[i];
}
// [/thread]

// [tree]
// Every thread gets the sum over the block: half of the threads add, then a quarter...
__device__ inline float tree_sum(float value) {
  __shared__ float sums[kThreads];
  sums[threadIdx.x] = value;
  __syncthreads();
  for (int adding = kThreads / 2; adding > 0; adding /= 2) {
    if (threadIdx.x < adding) sums[threadIdx.x] += sums[threadIdx.x + adding];
    __syncthreads();
  }
  return sums[0];
}
// [/tree]

// [block]
template <bool kShuffles>
__global__ void block_a_row(const bf16* __restrict__ x, const bf16* __restrict__ w,
                            bf16* __restrict__ y, int64_t rows, int hidden, float eps) {
  x += static_cast<int64_t>(blockIdx.x) * hidden;
  y += static_cast<int64_t>(blockIdx.x) * hidden;
  float sum = 0;
  for (int i = threadIdx.x; i < hidden; i += kThreads) {
    const float value = x[i];
    sum += value * value;
  }
  sum = kShuffles ? block_sum(sum) : tree_sum(sum);
  const float scale = reciprocal_rms(sum, hidden, eps);
  for (int i = threadIdx.x; i < hidden; i += kThreads) y[i] = x[i] * scale * w[i];
}
// [/block]

using Vector8 = Vector<bf16, kWidth>;  // 16 bytes: one load, one store

__device__ inline float squares(Vector8 x) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const float value = x.data[j];
    sum += value * value;
  }
  return sum;
}

__device__ inline Vector8 scaled(Vector8 x, float scale, Vector8 w) {
  Vector8 y;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) y.data[j] = x.data[j] * scale * w.data[j];
  return y;
}

// [wide]
// Unrolled further, it takes registers, and one block less is resident.
__global__ void __launch_bounds__(kThreads)
    wide_loads(const bf16* __restrict__ x, const bf16* __restrict__ w,
               bf16* __restrict__ y, int64_t rows, int hidden, float eps) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * hidden;
  const auto* x_row = reinterpret_cast<const Vector8*>(x + row);
  const auto* weight = reinterpret_cast<const Vector8*>(w);
  auto* y_row = reinterpret_cast<Vector8*>(y + row);
  const int vectors = hidden / kWidth;
  float sum = 0;
#pragma unroll 2
  for (int i = threadIdx.x; i < vectors; i += kThreads) sum += squares(x_row[i]);
  const float scale = reciprocal_rms(block_sum(sum), hidden, eps);
#pragma unroll 2
  for (int i = threadIdx.x; i < vectors; i += kThreads) {
    y_row[i] = scaled(x_row[i], scale, weight[i]);
  }
}
// [/wide]

// [hint]
// Stores 16 bytes. If kKeep, NVIDIA's L2 cache gives them up last.
template <bool kKeep>
__device__ inline void write(Vector8* to, Vector8 vector) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (kKeep) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    uint32_t word[4];
    __builtin_memcpy(word, &vector, sizeof(vector));
    asm volatile(
        "st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(to),
        "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3]), "l"(policy)
        : "memory");
    return;
  }
#endif
  *to = vector;
}
// [/hint]

// [registers]
// A thread has kKept vectors, a block apart, and a block's threads have the whole row.
// kKeepResults is the last step.
template <int kKept, bool kKeepResults>
__global__ void __launch_bounds__(kThreads)
    row_in_registers(const bf16* __restrict__ x, const bf16* __restrict__ w,
                     bf16* __restrict__ y, int64_t rows, int hidden, float eps) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * hidden;
  const auto* x_row = reinterpret_cast<const Vector8*>(x + row);
  const auto* weight = reinterpret_cast<const Vector8*>(w);
  auto* y_row = reinterpret_cast<Vector8*>(y + row);
  const int vectors = hidden / kWidth;

  Vector8 kept[kKept];
#pragma unroll
  for (int k = 0; k < kKept; ++k) {  // all loads are on their way before the first sum
    const int i = threadIdx.x + k * blockDim.x;
    if (i < vectors) kept[k] = x_row[i];
  }
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    if (threadIdx.x + k * blockDim.x < vectors) sum += squares(kept[k]);
  }
  const float scale = reciprocal_rms(block_sum(sum), hidden, eps);
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i < vectors) write<kKeepResults>(y_row + i, scaled(kept[k], scale, weight[i]));
  }
}
// [/registers]

struct Launch {
  void (*kernel)(const bf16*, const bf16*, bf16*, int64_t, int, float);
  int64_t blocks;
  int threads;
};

// As many threads as have `kVectors` vectors each, in whole warps of the widest kind.
inline int threads_of_row(int vectors) {
  const int wanted = (vectors + kVectors - 1) / kVectors;
  return (wanted + kWidestWarp - 1) / kWidestWarp * kWidestWarp;
}

inline Launch version_of(int version, int64_t rows, int hidden) {
  const int vectors = hidden / kWidth;
  const bool one_vector = vectors <= kThreads;
  switch (version) {
    case 1:
      return {thread_a_row, (rows + kRowsABlock - 1) / kRowsABlock, kRowsABlock};
    case 2:
      return {block_a_row<false>, rows, kThreads};
    case 3:
      return {block_a_row<true>, rows, kThreads};
    case 4:
      return {wide_loads, rows, kThreads};
    case 5:
      return {
          one_vector ? row_in_registers<1, false> : row_in_registers<kVectors, false>,
          rows, kThreads};
    case 6:
      return {row_in_registers<kVectors, false>, rows, threads_of_row(vectors)};
    case 7:
      return {row_in_registers<kVectors, true>, rows, threads_of_row(vectors)};
    default:
      return {nothing, 1, kWidestWarp};
  }
}

const char* launch_version(int version, const bf16* x, const bf16* w, bf16* y,
                           int64_t rows, int64_t hidden, float eps, void* stream) {
  if (hidden % kWidth != 0 || hidden > kMaxHidden) {
    return "hidden: expected a multiple of 8, at most 16384";
  }
  const Launch with = version_of(version, rows, hidden);
  const auto kernel = with.kernel;
  kernel<<<with.blocks, with.threads, 0, static_cast<cudaStream_t>(stream)>>>(
      x, w, y, rows, hidden, eps);
  return launch_error();
}

}  // namespace fast

// What how_it_got_fast.py calls.
extern "C" const char* launch(int version, const void* x, const void* w, void* y,
                              int64_t rows, int64_t hidden, float eps, void* stream) {
  using fast::bf16;
  return fast::launch_version(version, static_cast<const bf16*>(x),
                              static_cast<const bf16*>(w), static_cast<bf16*>(y), rows,
                              hidden, eps, stream);
}

#if !defined(__HIP__)
// Blocks that one multiprocessor holds at once; negative is an error of the runtime.
extern "C" int resident_blocks(int version, int64_t rows, int64_t hidden) {
  const auto with = fast::version_of(version, rows, static_cast<int>(hidden));
  int blocks = 0;
  const auto status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &blocks, with.kernel, with.threads, 0);
  return status == cudaSuccess ? blocks : -static_cast<int>(status);
}
#endif

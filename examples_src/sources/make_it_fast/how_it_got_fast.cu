// softmax_lse, from a plain kernel to the one that the starter ships, one change at a
// time, and a version beyond it. The headers are those of a project of the kind `rows`;
// nvcc and HIP's clang compile this file, and tests/emulated.py runs it on the CPU.
#include <algorithm>

#include "softmax_lse.h"

namespace starter {

constexpr int kRowsABlock = 128;     // of version 1, whose threads have a row each
constexpr int kThreads = kMaxBlock;  // that share a row in versions 2 to 5
constexpr int kReads = 4;            // of a thread, in the later versions

// What every launch costs: a kernel that does nothing.
template <typename Args>
__global__ void nothing(Args) {}

// [passes]
template <typename Args>
__device__ float largest_of(const Args& args, int64_t row, Share share) {
  const auto* score = args.scores.at(row);
  const bool* kept = args.mask.at(row);
  float largest = std::numeric_limits<float>::lowest();
  for (int64_t c = share.begin; c < share.end; c += share.step) {
    largest = std::fmax(largest, args.template load<1>(score, kept, c).values[0]);
  }
  return std::fmin(largest, std::numeric_limits<float>::max());  // not infinite
}

template <typename Args>
__device__ float sum_of(const Args& args, int64_t row, Share share, float largest) {
  const auto* score = args.scores.at(row);
  const bool* kept = args.mask.at(row);
  float sum = 0;
  for (int64_t c = share.begin; c < share.end; c += share.step) {
    sum += fast_exp(args.template load<1>(score, kept, c).values[0] - largest);
  }
  return sum;
}
// [/passes]

// [thread]
template <typename Args>
__global__ void thread_a_row(Args args) {
  const int64_t row = blockIdx.x * int64_t{blockDim.y} + threadIdx.y;
  if (row >= args.rows) return;
  const Share all = {0, args.columns, 1};
  const float largest = largest_of(args, row, all);
  const float sum = sum_of(args, row, all, largest);
  args.template write<1>(row, all, {largest, sum});
}
// [/thread]

struct Larger {
  __device__ float operator()(float a, float b) const { return std::fmax(a, b); }
};

struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};

// [tree]
// Every thread gets the values of all merged: half of the threads merge two each, then
// a quarter...
template <typename Merge>
__device__ float reduce_tree(float value, Merge merge) {
  __shared__ float values[kThreads];
  __syncthreads();  // a call before this one may still be reading
  values[threadIdx.x] = value;
  __syncthreads();
  for (unsigned merging = kThreads / 2; merging > 0; merging /= 2) {
    if (threadIdx.x < merging) {
      values[threadIdx.x] = merge(values[threadIdx.x], values[threadIdx.x + merging]);
    }
    __syncthreads();
  }
  return values[0];
}
// [/tree]

template <bool kShuffles, typename Merge>
__device__ float reduce(float value, Merge merge) {
  if constexpr (kShuffles) return reduce_row(value, merge);
  return reduce_tree(value, merge);
}

// [block]
template <bool kShuffles, typename Args>
__global__ void __launch_bounds__(kThreads) block_a_row(Args args) {
  const int64_t row = blockIdx.x;
  const Share share = {threadIdx.x, args.columns, kThreads};
  const float largest = reduce<kShuffles>(largest_of(args, row, share), Larger());
  const float sum = reduce<kShuffles>(sum_of(args, row, share, largest), Add());
  args.template write<1>(row, share, {largest, sum});
}
// [/block]

// [registers]
// As row_kernel, but a thread keeps what it reads, and computes each exponential once:
// from the largest of its own scores, and corrected at the end.
template <int N, typename Args>
__global__ void __launch_bounds__(kMaxBlock) row_in_registers(Args args) {
  const int64_t row = blockIdx.x * int64_t{blockDim.y} + threadIdx.y;
  const int64_t end = row < args.rows ? args.columns : 0;
  const auto* score = args.scores.at(row);
  const bool* mask = args.mask.at(row);
  constexpr float kLeast = std::numeric_limits<float>::lowest();
  Together<float, N> kept[kReads];
#pragma unroll  // all loads are in flight before the first is used
  for (int k = 0; k < kReads; ++k) {
    const int64_t c = (threadIdx.x + int64_t{k} * blockDim.x) * N;
    if (c < end) kept[k] = args.template load<N>(score, mask, c);
  }
  typename Args::State own = {kLeast, 0};
#pragma unroll
  for (int k = 0; k < kReads; ++k) {
    if ((threadIdx.x + int64_t{k} * blockDim.x) * N >= end) continue;
    for (const float x : kept[k].values) own.largest = std::fmax(own.largest, x);
  }
  if (own.largest > -kLeast) own.largest = -kLeast;  // infinite
#pragma unroll
  for (int k = 0; k < kReads; ++k) {
    if ((threadIdx.x + int64_t{k} * blockDim.x) * N >= end) continue;
    for (float& x : kept[k].values) {
      x = fast_exp(x - own.largest);
      own.sum += x;
    }
  }
  const auto all = reduce_row(own, Args::merge);
  const float once = all.sum == 0 ? 0 : (1 + (all.sum - all.sum)) / all.sum;
  const float factor = once * fast_exp(own.largest - all.largest);
#pragma unroll
  for (int k = 0; k < kReads; ++k) {
    const int64_t c = (threadIdx.x + int64_t{k} * blockDim.x) * N;
    if (c >= end) continue;
    for (float& x : kept[k].values) x *= factor;
    write(args.probs + row * args.columns + c, kept[k]);
  }
  if (threadIdx.x == 0 && end > 0) args.lse[row] = all.largest + std::log(all.sum);
}
// [/registers]

template <typename Args>
struct Launch {
  void (*kernel)(Args);
  unsigned threads, rows;  // of a block: the threads of each row, and the rows
};

// [versions]
template <typename Args>
Launch<Args> version_of(int version, int64_t columns) {
  constexpr int kWidth = kVectorBytes / sizeof(typename Args::Element);
  const int64_t reads = columns / kWidth;
  unsigned threads = 1;  // as launch_rows chooses
  while (threads < kMinWarpSize && threads < reads) threads *= 2;
  while (threads < kMaxBlock && threads * kReads < reads) threads *= 2;
  const unsigned rows = threads < 256 ? 256 / threads : 1;
  switch (version) {
    case 1:
      return {thread_a_row<Args>, 1, kRowsABlock};
    case 2:
      return {block_a_row<false, Args>, kThreads, 1};
    case 3:
      return {block_a_row<true, Args>, kThreads, 1};
    case 4:
      return {row_kernel<1, Args>, kThreads, 1};
    case 5:
      return {row_kernel<kWidth, Args>, kThreads, 1};
    case 6:
      return {row_kernel<kWidth, Args>, std::max<unsigned>(threads, kMinWarpSize), 1};
    case 7:
      return {row_kernel<kWidth, Args>, threads, rows};
    case 8:
      return {row_in_registers<kWidth, Args>, threads, rows};
    default:
      return {nothing<Args>, 1, 1};
  }
}
// [/versions]

template <typename T>
const char* launch_version(int version, const T* scores, const bool* mask, T* probs,
                           float* lse, int64_t rows, int64_t columns, void* stream) {
  constexpr int kWidth = kVectorBytes / sizeof(T);
  if (columns % kWidth != 0 || columns > int64_t{kMaxBlock} * kReads * kWidth) {
    return "columns: expected whole vectors of 16 bytes, at most 2048";
  }
  softmax_lse_args<T> args = {{scores, 1, 1, {rows}, {columns}}, {}, probs, lse};
  if (mask) args.mask = {mask, 1, 1, {rows}, {columns}};
  args.rows = rows, args.columns = columns, args.scale = 1;
  if (version == 7) return launch_rows(args, stream);
  const auto with = version_of<softmax_lse_args<T>>(version, columns);
  const auto kernel = with.kernel;
  const auto blocks = static_cast<unsigned>(blocks_for(rows, with.rows));
  const dim3 block(with.threads, with.rows);
  kernel<<<blocks, block, 0, static_cast<cudaStream_t>(stream)>>>(args);
  return launch_error();
}
template decltype(launch_version<c10::BFloat16>) launch_version<c10::BFloat16>;
template decltype(launch_version<float>) launch_version<float>;

}  // namespace starter

// What how_it_got_fast.py calls: `bytes` is 2 for bf16 and 4 for fp32.
extern "C" const char* launch(int version, int bytes, const void* scores, void* probs,
                              float* lse, int64_t rows, int64_t columns, void* stream) {
  const auto call = [&](auto zero) {
    using T = decltype(zero);
    return starter::launch_version<T>(version, static_cast<const T*>(scores), nullptr,
                                      static_cast<T*>(probs), lse, rows, columns,
                                      stream);
  };
  return bytes == 2 ? call(c10::BFloat16()) : call(float());
}

#if !defined(__HIP__)
template <typename T>
void occupancy(int version, int64_t columns, int* rows_of_block, int* blocks) {
  const auto with = starter::version_of<starter::softmax_lse_args<T>>(version, columns);
  *rows_of_block = with.rows;
  const auto status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, with.kernel, with.threads * with.rows, 0);
  if (status != cudaSuccess) *blocks = -static_cast<int>(status);
}

// Rows of a block, and blocks that one multiprocessor holds at once; if these are
// negative, an error of the runtime.
extern "C" void occupancy_of(int version, int bytes, int64_t columns,
                             int* rows_of_block, int* blocks) {
  bytes == 2 ? occupancy<c10::BFloat16>(version, columns, rows_of_block, blocks)
             : occupancy<float>(version, columns, rows_of_block, blocks);
}
#endif

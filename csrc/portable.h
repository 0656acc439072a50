// The one place that knows CUDA from HIP from the CPU. A kernel file includes this
// header, speaks the gpu* names below, and compiles with nvcc, with HIP's clang, and
// with a plain C++ compiler, which sees only the parts shared with the CPU.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__HIP__)
#include <hip/hip_runtime.h>
#define OPBOOK_GPU_COMPILER 1
using gpuStream_t = hipStream_t;
#define gpuDeviceGetAttribute hipDeviceGetAttribute
#define gpuDeviceMultiprocessorCount hipDeviceAttributeMultiprocessorCount
#define gpuGetDevice hipGetDevice
#define gpuGetLastError hipGetLastError
#define gpuGetErrorString hipGetErrorString
#define gpuSuccess hipSuccess
#elif defined(__CUDACC__)
#include <cuda_runtime.h>

#include <string>
#define OPBOOK_GPU_COMPILER 1
using gpuStream_t = cudaStream_t;
#define gpuDeviceGetAttribute cudaDeviceGetAttribute
#define gpuDeviceMultiprocessorCount cudaDevAttrMultiProcessorCount
#define gpuGetDevice cudaGetDevice
#define gpuGetLastError cudaGetLastError
#define gpuGetErrorString cudaGetErrorString
#define gpuSuccess cudaSuccess
#endif

#if defined(OPBOOK_GPU_COMPILER)
#define OPBOOK_HOST_DEVICE __host__ __device__
#else
#define OPBOOK_HOST_DEVICE
#endif

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

namespace opbook {

// The widest load or store a GPU thread issues is 16 bytes.
constexpr int kVectorBytes = 16;

// Sums run in fp32 for fp16, bf16 and fp32, and in fp64 for fp64.
template <typename scalar_t>
struct Accumulate {
  using type = float;
};
template <>
struct Accumulate<double> {
  using type = double;
};
template <typename scalar_t>
using accumulate_t = typename Accumulate<scalar_t>::type;

#if defined(OPBOOK_GPU_COMPILER)

// A wave of AMD's CDNA chips (gfx9) has 64 lanes, one of RDNA 32, as NVIDIA's warps.
// The host pass of a HIP compile has no chip, so this is a constant of device code
// alone.
#if defined(__HIP__) && defined(__GFX9__)
constexpr int kWarpSize = 64;
#else
constexpr int kWarpSize = 32;
#endif

// Host code sizes shared arrays for the narrowest warp and blocks for the widest one.
constexpr int kMinWarpSize = 32;
#if defined(__HIP__)
constexpr int kMaxWarpSize = 64;
#else
constexpr int kMaxWarpSize = 32;
#endif
constexpr int kMaxThreads = 1024;

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

// Blocks of kernels whose threads take one step after the other, a grid apart: no more
// than are far more than any GPU holds at once.
inline int64_t blocks_for(int64_t steps, int threads) {
  constexpr int64_t kMaxBlocks = 65536;
  const int64_t blocks = (steps + threads - 1) / threads;
  return blocks < kMaxBlocks ? blocks : kMaxBlocks;
}

// Multiprocessors (AMD: compute units) of the current device.
inline int multiprocessors() {
  int device = 0, count = 1;
  if (gpuGetDevice(&device) == gpuSuccess) {
    if (gpuDeviceGetAttribute(&count, gpuDeviceMultiprocessorCount, device) !=
        gpuSuccess) {
      count = 1;
    }
  }
  return count;
}

#if defined(__CUDA_ARCH_LIST__)
// What CUDA's words for a kernel without code for the device leave out. nvcc makes the
// list: 900 is compute capability 9.0.
inline const char* no_code_for_device(const char* words) {
  constexpr int kCompiledFor[] = {__CUDA_ARCH_LIST__};
  static thread_local std::string text;
  int device = 0, major = 0, minor = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  const auto name = [](int major, int minor) {
    return std::to_string(major) + "." + std::to_string(minor);
  };
  text = std::string(words) + ": the device has compute capability " +
         name(major, minor) + ", the kernels are compiled for";
  for (const int arch : kCompiledFor) text += " " + name(arch / 100, arch / 10 % 10);
  return text.c_str();
}
#endif

// Null, or what went wrong: the last launch could not start, or something before it
// failed and nobody asked.
inline const char* launch_error() {
  const auto status = gpuGetLastError();
#if defined(__CUDA_ARCH_LIST__)
  if (status == cudaErrorNoKernelImageForDevice) {
    return no_code_for_device(cudaGetErrorString(status));
  }
#endif
  return status == gpuSuccess ? nullptr : gpuGetErrorString(status);
}

template <typename T>
__device__ inline T shuffle_xor(T value, int lane_mask) {
#if defined(__HIP__)
  return __shfl_xor(value, lane_mask, kWarpSize);
#else
  return __shfl_xor_sync(0xffffffff, value, lane_mask);
#endif
}

// Every lane of a warp gets the sum over its lanes, or over those of its group: so many
// neighbours, a power of two.
template <typename T>
__device__ inline T warp_sum(T value, int group = kWarpSize) {
#pragma unroll
  for (int lane_mask = kWarpSize / 2; lane_mask > 0; lane_mask /= 2) {
    if (lane_mask < group) value += shuffle_xor(value, lane_mask);
  }
  return value;
}

// Every lane of a warp gets the sum of what `count` warps have left in shared memory:
// no more warps than a warp has lanes.
template <typename T>
__device__ inline T sum_of_warps(const T* sums, int count) {
  const int lane = threadIdx.x % kWarpSize;
  return warp_sum(lane < count ? sums[lane] : T(0));
}

// Every thread gets the sum over the threads along x, which must be whole warps. Each
// warp leaves its own sum in `partial`, in shared memory, and all threads add these up
// in the same order. A second call with the same `partial` needs a barrier before it.
template <typename T>
__device__ inline T sum_of_whole_warps(T value, T* partial) {
  value = warp_sum(value);
  if (threadIdx.x % kWarpSize == 0) partial[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  return sum_of_warps(partial, blockDim.x / kWarpSize);
}

// The same over a block of one row: whole warps, and no threads along y.
template <typename T>
__device__ inline T block_sum(T value) {
  __shared__ T partial[kMaxThreads / kMinWarpSize];
  return sum_of_whole_warps(value, partial);
}

// The same over a block whose size the compiler knows: to read all warps' sums takes a
// few wide loads then, and less time than to exchange them.
template <int kThreads, typename T>
__device__ inline T block_sum(T value) {
  constexpr int kWarps = kThreads / kWarpSize;
  alignas(kVectorBytes) __shared__ T partial[kWarps];
  value = warp_sum(value);
  if (threadIdx.x % kWarpSize == 0) partial[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  T sum = 0;
#pragma unroll
  for (const T& warps_sum : partial) sum += warps_sum;
  return sum;
}

#endif  // OPBOOK_GPU_COMPILER

// 1 / x and 2^x in one instruction of a GPU, which errs by few units in the last place
// and takes subnormal numbers for zero. The CPU's are exact to one.
OPBOOK_HOST_DEVICE inline float fast_reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#elif defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_rcpf(x);
#else
  return 1.0f / x;
#endif
}

OPBOOK_HOST_DEVICE inline float fast_exp2(float x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#elif defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_exp2f(x);
#else
  return std::exp2(x);
#endif
}

// N neighbouring elements, aligned so that the compiler moves them 16 bytes at a time.
template <typename T, int N>
struct alignas(sizeof(T) * N < kVectorBytes ? sizeof(T) * N : kVectorBytes) Vector {
  T data[N];
};

#if defined(OPBOOK_GPU_COMPILER)
// A vector in registers, as it came from memory. Between two uses of a plain vector the
// compiler may keep what it converted the elements to, in two or four times as many
// registers; asm that could have changed the words leaves it nothing to keep.
template <typename Elements>
struct alignas(Elements) Packed {
  uint32_t words[sizeof(Elements) / sizeof(uint32_t)];

  __device__ Elements unpack() {
#pragma unroll
    for (uint32_t& word : words) {
#if defined(__HIP_DEVICE_COMPILE__)
      asm volatile("" : "+v"(word));
#else
      asm volatile("" : "+r"(word));
#endif
    }
    Elements elements;
    __builtin_memcpy(&elements, words, sizeof(words));
    return elements;
  }
};

template <typename Elements>
__device__ inline Packed<Elements> pack(Elements elements) {
  Packed<Elements> packed;
  __builtin_memcpy(packed.words, &elements, sizeof(packed.words));
  return packed;
}
#endif

#if defined(OPBOOK_GPU_COMPILER)
// [l2]
// What NVIDIA's L2 cache gives up last: no line in particular, those that a kernel
// writes, so that the next kernel finds more of them there, or all that it touches.
enum class Keep { kAny, kResults, kAll };

// What is best for a kernel that reads and writes so many bytes each. Results that fit
// the cache need no help; the bounds are measured.
inline Keep what_to_keep(int64_t bytes) {
#if defined(__CUDACC__) && !defined(__HIP__)
  int device = 0, cache = 0;
  if (cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device) == cudaSuccess) {
    if (bytes >= 4 * int64_t{cache}) return Keep::kAll;
    if (bytes > cache) return Keep::kResults;
  }
#endif
  return Keep::kAny;
}

// Loads and stores that tell the L2 cache what to keep, if they are 16 bytes wide.
class L2Cache {
 public:
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  __device__ explicit L2Cache(Keep keep)
      : loads_(policy(keep == Keep::kAll)), stores_(policy(keep != Keep::kAny)) {}
#else
  __device__ explicit L2Cache(Keep) {}
#endif

  template <typename Elements>
  __device__ Packed<Elements> load(const Packed<Elements>* from) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if constexpr (sizeof(Elements) == kVectorBytes) {
      Packed<Elements> packed;
      uint32_t* words = packed.words;
      asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                   : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                   : "l"(from), "l"(loads_)
                   : "memory");
      return packed;
    }
#endif
    return *from;
  }

  template <typename Elements>
  __device__ void store(Elements* to, Elements elements) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if constexpr (sizeof(Elements) == kVectorBytes) {
      const auto packed = pack(elements);
      const uint32_t* words = packed.words;
      asm volatile(
          "st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(to),
          "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "l"(stores_)
          : "memory");
      return;
    }
#endif
    *to = elements;
  }

 private:
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  __device__ static uint64_t policy(bool last) {
    uint64_t policy;
    if (last) {
      asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    } else {
      asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    }
    return policy;
  }

  uint64_t loads_, stores_;
#endif
};
// [/l2]
#endif

inline bool is_vector_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kVectorBytes == 0;
}

// Whether every row of a matrix begins on a 16-byte boundary.
template <typename scalar_t>
bool rows_are_aligned(const scalar_t* data, int64_t stride, int64_t rows) {
  return is_vector_aligned(data) &&
         (rows == 1 || stride * sizeof(scalar_t) % kVectorBytes == 0);
}

}  // namespace opbook

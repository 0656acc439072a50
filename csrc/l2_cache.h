// Which data NVIDIA's L2 cache should keep. Elsewhere nothing is asked of the cache.
#pragma once

#include "vectors.h"

namespace opbook {

#if defined(OPBOOK_GPU_COMPILER)

// [l2]
// Which lines NVIDIA's L2 cache evicts last: kAny, none in particular; kResults, those
// that the kernel writes, so that the next kernel finds more of them in the cache.
enum class Keep { kAny, kResults };

// What is best for a kernel that writes `bytes`. Results that fit the cache need no
// help.
inline Keep what_to_keep(int64_t bytes) {
#if defined(__CUDACC__) && !defined(__HIP__)
  int device = 0, cache = 0;
  if (cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device) == cudaSuccess &&
      bytes > cache) {
    return Keep::kResults;
  }
#endif
  return Keep::kAny;
}

// Stores that tell the L2 cache what to keep, if they are 16 bytes wide. They also stay
// whole: nvcc joins a plain store of a vector with the stores of single elements that
// another branch has, and makes it one of those.
class L2Cache {
 public:
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  __device__ explicit L2Cache(Keep keep) {
    if (keep == Keep::kResults) {
      asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy_));
    } else {
      asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy_));
    }
  }
#else
  __device__ explicit L2Cache(Keep) {}
#endif

  template <typename Elements>
  __device__ void store(Elements* to, Elements elements) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if constexpr (sizeof(Elements) == kVectorBytes) {
      const auto packed = pack(elements);
      const uint32_t* words = packed.words;
      asm volatile(
          "st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(to),
          "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "l"(policy_)
          : "memory");
      return;
    }
#endif
    *to = elements;
  }

 private:
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint64_t policy_;
#endif
};
// [/l2]

#endif  // OPBOOK_GPU_COMPILER

}  // namespace opbook

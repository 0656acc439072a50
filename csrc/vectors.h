// Where the rows of a matrix are, and neighbouring elements that one load or store
// moves.
#pragma once

#include "portable.h"

namespace opbook {

// Rows that begin `stride` elements apart; the elements of a row are neighbours.
template <typename T>
struct View {
  T* data;
  int64_t stride;

  OPBOOK_HOST_DEVICE T* row(int64_t i) const { return data + i * stride; }
};

// A thread loads or stores at most 16 bytes at once.
constexpr int kVectorBytes = 16;

OPBOOK_HOST_DEVICE inline bool is_vector_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kVectorBytes == 0;
}

// N neighbouring elements, aligned so that the compiler moves them 16 bytes at a time.
template <typename T, int N>
struct alignas(sizeof(T) * N < kVectorBytes ? sizeof(T) * N : kVectorBytes) Vector {
  T data[N];
};

#if defined(OPBOOK_GPU)

// A vector in registers, as it came from memory. Between two uses of a plain vector the
// compiler may keep the converted elements: fp16 as fp32 takes twice the registers. The
// empty asm below might change the words, so the compiler has to convert them again.
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

// Stores a vector in global memory by as few instructions as there can be.
template <typename Elements>
__device__ inline void store_at_once(Elements* to, Elements elements) {
#if defined(__CUDA_ARCH__)
  const auto packed = pack(elements);
  const uint32_t* words = packed.words;
#pragma unroll
  for (size_t i = 0; i < sizeof(packed) / sizeof(uint32_t); i += 4) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(
                     reinterpret_cast<uint32_t*>(to) + i),
                 "r"(words[i]), "r"(words[i + 1]), "r"(words[i + 2]), "r"(words[i + 3])
                 : "memory");
  }
#else
  *to = elements;
  asm volatile("" ::: "memory");
#endif
}

#endif  // OPBOOK_GPU

}  // namespace opbook

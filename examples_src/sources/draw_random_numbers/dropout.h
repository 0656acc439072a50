// Dropout whose mask is a function of a state and of an element's number. nvcc, HIP's
// clang and a C++ compiler compile this file.
#pragma once

#include "../../../starter/cpp/csrc/vectors.h"

namespace draw {

using namespace starter;

constexpr int kWords = 4;  // of 32 bits, that one call of philox makes

struct Words {
  uint32_t at[kWords];
};

// [philox]
// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011):
// ten rounds mix a key and a counter of 128 bits into four words. Nothing is kept from
// one call to the next, so every thread can make the words of its own elements.
STARTER_HOST_DEVICE inline Words philox(uint64_t key, uint64_t low, uint64_t high) {
  uint32_t x0 = low, x1 = low >> 32, x2 = high, x3 = high >> 32;
  uint32_t key0 = key, key1 = key >> 32;
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * x0, b = uint64_t{0xCD9E8D57} * x2;
    x0 = (b >> 32) ^ x1 ^ key0, x1 = b;
    x2 = (a >> 32) ^ x3 ^ key1, x3 = a;
    key0 += 0x9E3779B9, key1 += 0xBB67AE85;
  }
  return {{x0, x1, x2, x3}};
}
// [/philox]

// [group]
// The state is a seed and an offset, which counts words, as in PyTorch's generators.
// Four neighbours have the words of one call, which their group's number chooses.
STARTER_HOST_DEVICE inline Words words_of(const int64_t* state, int64_t group) {
  return philox(state[0], static_cast<uint64_t>(state[1]) / kWords, group);
}

// A word is below p * 2^32 with probability p, and its element becomes zero.
struct Rate {
  explicit Rate(double p) : limit(p * 4294967296.0), scale(p < 1 ? 1 / (1 - p) : 0) {}

  template <typename T>
  STARTER_HOST_DEVICE T apply(T value, uint32_t word) const {
    using acc_t = compute_t<T>;
    if (word < limit) return T(0);
    return static_cast<T>(static_cast<acc_t>(value) * static_cast<acc_t>(scale));
  }

  uint64_t limit;
  double scale;
};

template <typename T>
STARTER_HOST_DEVICE void drop_group(const T* input, T* output, int64_t count, Rate rate,
                                    Words words) {
#pragma unroll  // so that the words stay in registers
  for (int i = 0; i < kWords; ++i) {
    if (i < count) output[i] = rate.apply(input[i], words.at[i]);
  }
}
// [/group]

// Returns null, or the runtime's words for a launch error.
template <typename T>
const char* launch_dropout(const T* input, T* output, int64_t count, Rate rate,
                           const int64_t* state, void* stream);

#if defined(STARTER_GPU)

// [kernel] each thread takes the groups that are a grid apart
template <bool kAligned, typename T>
__global__ void dropout_kernel(const T* input, T* output, int64_t count, Rate rate,
                               const int64_t* state) {
  using Group = Vector<T, kWords>;
  const int64_t step = static_cast<int64_t>(blockDim.x) * gridDim.x;
  int64_t group = threadIdx.x + static_cast<int64_t>(blockDim.x) * blockIdx.x;
  for (; group * kWords < count; group += step) {
    const int64_t first = group * kWords, left = count - first;
    const Words words = words_of(state, group);
    if (kAligned && left >= kWords) {
      Group values = *reinterpret_cast<const Group*>(input + first);
      drop_group(values.data, values.data, kWords, rate, words);
      *reinterpret_cast<Group*>(output + first) = values;
    } else {
      drop_group(input + first, output + first, left < kWords ? left : kWords, rate,
                 words);
    }
  }
}
// [/kernel]

#endif  // STARTER_GPU

}  // namespace draw

// Compares philox() with the engine in PyTorch's headers, for a million counters.
#include <ATen/core/PhiloxRNGEngine.h>

#include <cstdio>
#include <random>

#include "dropout.h"

int main() {
  std::mt19937_64 any;
  int64_t wrong = 0;
  const int calls = 1000000;
  for (int call = 0; call < calls; ++call) {
    const uint64_t key = any(), low = any(), high = any();
    at::Philox4_32 engine(key, high, low);
    const draw::Words words = draw::philox(key, low, high);
    for (const uint32_t word : words.at) wrong += word != engine();
  }
  std::printf("%d calls, %ld words differ\n", calls, static_cast<long>(wrong));
  return wrong != 0;
}

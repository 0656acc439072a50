#include <cmath>
#include <cstdint>

// [loop]
void roots(const float* input, float* output, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) output[i] = std::sqrt(input[i]);
}
// [/loop]

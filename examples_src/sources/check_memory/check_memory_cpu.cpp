// The same operator on the CPU, with a fault: the loop runs one element too far.
#include <cstddef>

extern "C" void neighbour_sum(const float* input, float* output, std::size_t size) {
  for (std::size_t i = 0; i <= size; ++i) {
    output[i] = input[i] + (i > 0 ? input[i - 1] : 0);
  }
}

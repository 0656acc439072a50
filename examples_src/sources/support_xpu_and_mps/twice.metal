#include <metal_stdlib>

kernel void twice(device const float* input, device float* output,
                  uint i [[thread_position_in_grid]]) {
  output[i] = 2 * input[i];
}

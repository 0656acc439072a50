// The sum over the threads of a block.
#pragma once

#include "../../../starter/cpp/csrc/vectors.h"

namespace plain {

using namespace starter;

#if defined(STARTER_GPU)

#if defined(__HIP__) && defined(__GFX9__)
constexpr int kWarpSize = 64;
#else
constexpr int kWarpSize = 32;
#endif
constexpr int kMaxWarps = 32;  // of a block, which has up to 1024 threads

// Every lane of a warp gets the sum over its lanes.
__device__ inline float warp_sum(float value) {
  for (int lane_mask = kWarpSize / 2; lane_mask > 0; lane_mask /= 2) {
#if defined(__HIP__)
    value += __shfl_xor(value, lane_mask, kWarpSize);
#else
    value += __shfl_xor_sync(0xffffffff, value, lane_mask);
#endif
  }
  return value;
}

// Every thread gets the sum over its block, which must have whole warps. A block can
// call it once: a second call might overwrite sums that a slow warp has still to read.
__device__ inline float block_sum(float value) {
  __shared__ float sums[kMaxWarps];
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  value = warp_sum(value);
  if (lane == 0) sums[warp] = value;
  __syncthreads();
  return warp_sum(lane < blockDim.x / kWarpSize ? sums[lane] : 0.0f);
}

#endif  // STARTER_GPU

}  // namespace plain

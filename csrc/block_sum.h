// The sum over the threads of a warp and of a block.
#pragma once

#include "vectors.h"

namespace opbook {

#if defined(OPBOOK_GPU)

template <typename T>
__device__ inline T shuffle_xor(T value, int lane_mask) {
#if defined(__HIP__)
  return __shfl_xor(value, lane_mask, kWarpSize);
#else
  return __shfl_xor_sync(0xffffffff, value, lane_mask);
#endif
}

// Every lane of a warp gets the sum over its lanes, or, if `group` is smaller, over the
// `group` neighbouring lanes that it is one of. `group` is a power of two.
template <typename T>
__device__ inline T warp_sum(T value, int group = kWarpSize) {
#pragma unroll
  for (int lane_mask = kWarpSize / 2; lane_mask > 0; lane_mask /= 2) {
    if (lane_mask < group) value += shuffle_xor(value, lane_mask);
  }
  return value;
}

// Every thread gets the sum over the threads along x, which must be whole warps. Each
// warp leaves its own sum in `partial`, in shared memory, and all threads add these up
// in the same order. A second call with the same `partial` needs a barrier before it.
template <typename T>
__device__ inline T sum_of_whole_warps(T value, T* partial) {
  value = warp_sum(value);
  const unsigned lane = threadIdx.x % kWarpSize;
  if (lane == 0) partial[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  return warp_sum(lane < blockDim.x / kWarpSize ? partial[lane] : T(0));
}

// The same over a block of one row: whole warps, and no threads along y.
template <typename T>
__device__ inline T block_sum(T value) {
  __shared__ T partial[kMaxThreads / kMinWarpSize];
  return sum_of_whole_warps(value, partial);
}

#endif  // OPBOOK_GPU

}  // namespace opbook

// The sum over the threads that share a row, once, or row after row with one barrier
// each. A row belongs to the threads of one threadIdx.y, or, on NVIDIA since sm_90, to
// a cluster: blocks that run side by side and reach into each other's shared memory.
#pragma once

#include "../block_sum.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#include <cooperative_groups.h>

#include <cuda/ptx>
#endif

namespace opbook {

#if defined(OPBOOK_GPU)

// [sum]
// Where the warps of one threadIdx.y leave their sums.
template <typename T>
__device__ inline T* partial_of_row(T* partial) {
  return partial + threadIdx.y * (blockDim.x / kWarpSize);
}

// Every thread gets the sum over the threads of its threadIdx.y. They are whole warps,
// or a part of one warp, whose sum needs no barrier.
template <typename T>
__device__ inline T sum_of_row(T value, T* partial) {
  if (blockDim.x <= kWarpSize) return warp_sum(value, blockDim.x);
  return sum_of_whole_warps(value, partial_of_row(partial));
}
// [/sum]

// [row_sum]
// One object in shared memory, used by the whole block: start(), then sum() with turn
// 0, 1, 2, ... Two sets of partial sums take turns, so that a fast warp may write those
// of the next row while a slow one still reads: no second barrier is needed.
template <typename T, int kBlocks>
struct RowSum {
  T warps[2][kMaxThreads / kMinWarpSize];
  T blocks[2][kBlocks];
  alignas(8) uint64_t arrivals[2];

  __device__ void start() {
    if constexpr (kBlocks > 1) start_cluster();
  }

  // Every thread of the row gets the sum, added in a fixed order.
  __device__ T sum(T value, int turn) {
    T total = sum_of_whole_warps(value, partial_of_row(warps[turn % 2]));
    if constexpr (kBlocks > 1) total = sum_over_blocks(total, turn);
    return total;
  }
  // [/row_sum]

 private:
  // [cluster]
  __device__ void start_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
      for (uint64_t& arrival : arrivals) cuda::ptx::mbarrier_init(&arrival, 1);
      cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
    }
    cuda::ptx::barrier_cluster_arrive();  // sum_over_blocks waits for it
#endif
  }

  // Each block writes its sum into the shared memory of all blocks of the cluster. The
  // store counts its bytes at the receiver's barrier, and so needs no fence. A barrier
  // of the whole cluster would also wait until the previous row is stored.
  __device__ T sum_over_blocks(T value, int turn) {
    T total = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    namespace ptx = cuda::ptx;
    const auto cluster = cooperative_groups::this_cluster();
    T* sums = blocks[turn % 2];
    uint64_t* arrival = &arrivals[turn % 2];
    if (turn == 0) ptx::barrier_cluster_wait();
    if (threadIdx.x == 0) {
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta,
                                     ptx::space_shared, arrival, kBlocks * sizeof(T));
    }
    if (threadIdx.x < kBlocks) {
      ptx::st_async(cluster.map_shared_rank(sums + cluster.block_rank(), threadIdx.x),
                    value, cluster.map_shared_rank(arrival, threadIdx.x));
    }
    while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, arrival,
                                          turn / 2 % 2)) {
    }
    for (int block = 0; block < kBlocks; ++block) total += sums[block];
#endif
    return total;
  }
  // [/cluster]
};

#endif  // OPBOOK_GPU

}  // namespace opbook

// Three lines that compiled with an older CUDA, or with __half: -DTRY=1, 2 or 3.
#include <torch/headeronly/util/Half.h>
#include <cub/block/block_reduce.cuh>

#if TRY == 1
__global__ void largest(float* x) {
  using Reduce = cub::BlockReduce<float, 128>;
  __shared__ Reduce::TempStorage storage;
  const float found = Reduce(storage).Reduce(x[threadIdx.x], cub::Max());
  if (threadIdx.x == 0) x[0] = found;
}
#elif TRY == 2
int kilohertz(const cudaDeviceProp& properties) { return properties.clockRate; }
#else
__global__ void add(c10::Half* sum, c10::Half x) { atomicAdd(sum, x); }
#endif

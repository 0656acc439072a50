// A kernel that follows an index without looking at it, and a program that calls it.
#include <cstdio>

// [kernel]
__global__ void gather(const float* table, const int* index, float* output, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) {
    const int row = index[i];
    output[i] = table[row];
  }
}
// [/kernel]

int main() {
  constexpr int kCount = 64;
  int rows[kCount];
  for (int i = 0; i < kCount; ++i) rows[i] = i;
  rows[32] = 1 << 28;  // far past the end of the table
  float *table, *output;
  int* index;
  cudaMalloc(&table, sizeof(float) * kCount);
  cudaMalloc(&output, sizeof(float) * kCount);
  cudaMalloc(&index, sizeof rows);
  cudaMemset(table, 0, sizeof(float) * kCount);
  cudaMemcpy(index, rows, sizeof rows, cudaMemcpyHostToDevice);
  gather<<<1, kCount>>>(table, index, output, kCount);
  const auto status = cudaDeviceSynchronize();
  std::puts(cudaGetErrorString(status));
  return status != cudaSuccess;
}

// The smallest kernel there is: what matters on the page is how it is compiled.
extern "C" __global__ void double_values(float* values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] *= 2;
}

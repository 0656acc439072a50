// A kernel for any element type. Compile with -DELEMENT=float or -DELEMENT=Pair.

// [kernel]
struct Pair {
  float first, second;
};

template <typename scalar_t>
__global__ void scale_kernel(scalar_t* values, float factor, int size) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < size) values[i] = static_cast<scalar_t>(factor * values[i]);
}

void launch_scale(ELEMENT* values, float factor, int size) {
  scale_kernel<<<(size + 255) / 256, 256>>>(values, factor, size);
}
// [/kernel]

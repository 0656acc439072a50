// The GPU kernel that operators share if each element of a result depends on the same
// element of the arguments, and its launcher, which knows nothing of tensors.
#pragma once

#include "vectors.h"

namespace starter {

// For a CUDA or HIP stream: returns null, or why the launch failed.
template <typename Args>
const char* launch_elements(const Args& args, void* stream);

#if defined(STARTER_GPU)
// Whether threads can read 16 bytes of each tensor at once.
template <typename... Views>
bool are_aligned(Views... views) {
  return (is_aligned(views) && ...);
}

// A thread computes N neighbouring elements, or those that are left.
template <int N, typename Args>
__global__ void element_kernel(Args args) {
  const int64_t first = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) * N;
  if (first >= args.count) return;
  args.template compute<N>(first);
}

// If all tensors are aligned, a thread moves 16 bytes of each, or else one element.
template <typename Args>
const char* launch_elements(const Args& args, void* stream) {
  constexpr int kThreads = 256, kWidth = kVectorBytes / sizeof(typename Args::Element);
  if (args.count == 0) return nullptr;  // a launch of no blocks would be an error
  const bool wide = args.is_aligned();
  const auto kernel = wide ? element_kernel<kWidth, Args> : element_kernel<1, Args>;
  const int64_t blocks = blocks_for(args.count, kThreads * (wide ? kWidth : 1));
  kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(args);
  return launch_error();
}
#endif

}  // namespace starter

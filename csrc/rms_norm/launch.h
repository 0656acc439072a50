// Two ways to launch that CUDA has since sm_90: clusters of blocks, and programmatic
// dependent launch, where a kernel starts before the previous one is done. Elsewhere
// the device functions do nothing; without CUDA, OPBOOK_CLUSTERS is not defined either.
#pragma once

#include "../portable.h"

#if defined(__CUDACC__) && !defined(__HIP__)
#define OPBOOK_CLUSTERS 1
#endif

namespace opbook {

#if defined(OPBOOK_GPU)

// [early]
// When each block of a kernel has called this or ended, a next kernel that EarlyLaunch
// launches starts in the room that is left. Any other one waits for the kernel's end.
__device__ inline void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// The next kernel, launched by EarlyLaunch, calls this before it touches memory. It
// returns when all that the previous kernel wrote can be read.
__device__ inline void wait_for_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}
// [/early]

#endif  // OPBOOK_GPU

#if defined(OPBOOK_CLUSTERS)

// Whether the current device has both ways, and the kernel was compiled for them. A new
// device may run code for an old one, in which the functions above do nothing.
template <typename Kernel>
bool has_clusters(Kernel kernel) {
  int device = 0, has = 0;
  cudaFuncAttributes code{};
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&has, cudaDevAttrClusterLaunch, device);
  return has != 0 && cudaFuncGetAttributes(&code, kernel) == cudaSuccess &&
         code.ptxVersion >= 90;
}

// A launch with an attribute, for which angle brackets have no place.
struct LaunchWithAttribute {
  cudaLaunchAttribute attribute{};
  cudaLaunchConfig_t config{};

  LaunchWithAttribute(dim3 threads, void* stream) {
    config.blockDim = threads;
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &attribute;
    config.numAttrs = 1;
  }

  LaunchWithAttribute(const LaunchWithAttribute&) = delete;  // it points to itself

  template <typename... Parameters, typename... Arguments>
  void operator()(void (*kernel)(Parameters...), dim3 blocks, Arguments... arguments) {
    config.gridDim = blocks;
    cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
  }
};

// Launches of kernels whose rows belong to clusters of kBlocks blocks.
template <int kBlocks>
struct ClusterLaunch : LaunchWithAttribute {
  ClusterLaunch(int threads, void* stream) : LaunchWithAttribute(threads, stream) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {kBlocks, 1, 1};
  }

  // How many clusters the device runs at a time. That is none on a part of a GPU that
  // has room for fewer blocks side by side than a cluster has.
  template <typename Kernel>
  int64_t clusters_at_a_time(Kernel kernel) {
    int clusters = 0;
    config.gridDim = dim3(kBlocks);
    const auto status = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
    if (status == cudaSuccess) return clusters;
    cudaGetLastError();  // it is not the launch's
    return 0;
  }
};

// Launches of a kernel that calls wait_for_kernel_before().
struct EarlyLaunch : LaunchWithAttribute {
  EarlyLaunch(dim3 threads, void* stream) : LaunchWithAttribute(threads, stream) {
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
};

#endif  // OPBOOK_CLUSTERS

}  // namespace opbook

// The GPU launcher. nvcc compiles this file for CUDA, HIP's clang for ROCm. It knows
// raw pointers and a stream; tensors, checks and registration live in rms_norm_op.cpp.
#include "rms_norm.h"

#include <algorithm>

namespace opbook {

// [launch]
#if defined(OPBOOK_CLUSTERS)
// False where the device runs no cluster of this kernel.
template <bool kAligned, typename T, typename W>
bool launch_cluster(const rms_norm_args<T, W>& args, const Call& call, void* stream) {
  constexpr int kWidth = kElements<T>;
  const auto kernel = rms_norm_cluster_kernel<T, W, kWidth, kAligned>;
  if (!has_clusters(kernel)) return false;
  const int64_t vectors = (call.vectors + kClusterBlocks - 1) / kClusterBlocks;
  const int threads = threads_for((vectors + kClusterKept - 1) / kClusterKept);
  ClusterLaunch<kClusterBlocks> launch(threads, stream);
  int64_t clusters = std::min(call.rows, launch.clusters_at_a_time(kernel));
  // Every kWidth-th row begins as far from a vector as the first.
  if (!kAligned && clusters < call.rows) clusters -= clusters % kWidth;
  if (clusters == 0) return false;
  const Problem<compute_t<T>> problem(args);
  launch(kernel, clusters * kClusterBlocks, args.input, args.weight, args.output,
         args.rrms, problem);
  return true;
}
#endif

template <bool kAligned, typename T, typename W>
const char* launch_rows(const rms_norm_args<T, W>& args, int alignment, void* stream) {
  Call call = call_of<kAligned>(args, alignment, false);
#if defined(OPBOOK_CLUSTERS)
  call.has_clusters = true;
  if (path_of(call) == Path::kCluster && launch_cluster<kAligned>(args, call, stream)) {
    return launch_error();
  }
  call.has_clusters = false;
#endif
  const auto [kernel, block] = launch_of<T, W, kAligned, NoResidual>(call);
  kernel<<<grid_of_rows(args.rows, block), block, 0,
           static_cast<cudaStream_t>(stream)>>>(args.input, NoResidual{}, args.weight,
                                                args.output, args.rrms,
                                                Problem<compute_t<T>>(args));
  return launch_error();
}

template <typename T, typename W>
const char* launch_rms_norm(const rms_norm_args<T, W>& args, void* stream) {
  const int alignment = std::min(alignment_of(args.input, args.rows, args.hidden),
                                 alignment_of(args.output, args.rows, args.hidden));
  const bool aligned = alignment == kVectorBytes && is_vector_aligned(args.weight);
  return aligned ? launch_rows<true>(args, alignment, stream)
                 : launch_rows<false>(args, alignment, stream);
}
// [/launch]

#define OPBOOK_INSTANTIATE(T, W) \
  template const char* launch_rms_norm(const rms_norm_args<T, W>&, void*)
OPBOOK_FOR_INPUT_AND_WEIGHT(OPBOOK_INSTANTIATE);

}  // namespace opbook

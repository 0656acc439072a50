// The GPU launcher. nvcc compiles this file for CUDA, HIP's clang for ROCm. It knows
// raw pointers and a stream; tensors, checks and registration live in rms_norm_op.cpp.
#include <algorithm>

#include "rms_norm.h"

namespace opbook {

// [launch]
template <typename scalar_t, typename weight_t, bool kAligned>
const char* launch_rows(View<const scalar_t> input, const weight_t* weight,
                        View<scalar_t> output, accumulate_t<scalar_t>* rrms,
                        const Problem<accumulate_t<scalar_t>>& problem, int alignment,
                        void* stream) {
  Call call = call_of<scalar_t, kAligned>(problem.rows, problem.hidden, alignment,
                                          weight, false, false);
#if defined(OPBOOK_CLUSTERS)
  constexpr int kWidth = kElements<scalar_t>;
  const auto cluster_kernel =
      rms_norm_cluster_kernel<scalar_t, weight_t, kWidth, kAligned>;
  call.has_clusters = true;
  if (path_of(call) == Path::kCluster && has_clusters(cluster_kernel)) {
    const int64_t share = (call.vectors + kClusterBlocks - 1) / kClusterBlocks;
    ClusterLaunch<kClusterBlocks> launch(
        threads_for((share + kClusterKept - 1) / kClusterKept), stream);
    int64_t clusters = std::min(call.rows, launch.clusters_at_a_time(cluster_kernel));
    // Every kWidth-th row begins as far from a vector as the first.
    if (!kAligned && clusters < call.rows) clusters -= clusters % kWidth;
    if (clusters > 0) {
      launch(cluster_kernel, clusters, input, weight, output, rrms, problem);
      return launch_error();
    }
  }
  call.has_clusters = false;
#endif
  const auto [kernel, block] =
      launch_of<scalar_t, weight_t, kAligned, NoResidual>(path_of(call), call);
  kernel<<<grid_of_rows(call.rows, block), block, 0,
           static_cast<gpuStream_t>(stream)>>>(input, NoResidual{}, weight, output,
                                               rrms, problem);
  return launch_error();
}

template <typename scalar_t, typename weight_t>
const char* launch_rms_norm(const scalar_t* input, int64_t input_stride,
                            const weight_t* weight, scalar_t* output,
                            int64_t output_stride, accumulate_t<scalar_t>* rrms,
                            int64_t rows, int64_t hidden, double eps, void* stream) {
  const Problem<accumulate_t<scalar_t>> problem(rows, hidden, eps);
  const View<const scalar_t> inputs{input, input_stride};
  const View<scalar_t> outputs{output, output_stride};
  const int alignment = std::min(alignment_of(input, input_stride, rows, hidden),
                                 alignment_of(output, output_stride, rows, hidden));
  const bool aligned = alignment == kVectorBytes && is_vector_aligned(weight);
  return (aligned ? launch_rows<scalar_t, weight_t, true>
                  : launch_rows<scalar_t, weight_t, false>)(inputs, weight, outputs,
                                                            rrms, problem, alignment,
                                                            stream);
}
// [/launch]

#define OPBOOK_INSTANTIATE(scalar_t, weight_t)                                      \
  template const char* launch_rms_norm(const scalar_t*, int64_t, const weight_t*,   \
                                       scalar_t*, int64_t, accumulate_t<scalar_t>*, \
                                       int64_t, int64_t, double, void*)
OPBOOK_FOR_INPUT_AND_WEIGHT(OPBOOK_INSTANTIATE);

}  // namespace opbook

// The GPU launcher. nvcc compiles this file for CUDA, HIP's clang for ROCm. It knows
// raw pointers and a stream; tensors, checks and registration live in rms_norm_op.cpp.
#include <algorithm>

#include "rms_norm.h"

namespace opbook {

// [launch]
template <typename scalar_t, typename weight_t, bool kAligned>
const char* launch_rows(const scalar_t* input, int64_t input_stride,
                        const weight_t* weight, scalar_t* output, int64_t output_stride,
                        accumulate_t<scalar_t>* rrms, int64_t rows, int64_t hidden,
                        double eps, void* stream) {
  using acc_t = accumulate_t<scalar_t>;
  const acc_t inverse_hidden = acc_t(1) / static_cast<acc_t>(hidden);
  const Keep keep = what_to_keep(rows * hidden * sizeof(scalar_t));
#if defined(OPBOOK_CLUSTERS)
  constexpr int kWidth = kElements<scalar_t>;
  const int64_t vectors = Columns<kWidth, kAligned>::most_vectors(hidden);
  const auto cluster_kernel = rms_norm_cluster_kernel<scalar_t, weight_t, kAligned>;
  if (vectors > 2 * kMaxThreads &&
      vectors <= kClusterKept * kClusterThreads * kClusterBlocks &&
      has_clusters(cluster_kernel)) {
    const int64_t share = (vectors + kClusterBlocks - 1) / kClusterBlocks;
    ClusterLaunch<kClusterBlocks> launch(
        threads_for((share + kClusterKept - 1) / kClusterKept), stream);
    int64_t clusters = std::min(rows, launch.clusters_at_a_time(cluster_kernel));
    // Every kWidth-th row begins as far from a vector as the first.
    if (!kAligned && clusters < rows) clusters -= clusters % kWidth;
    if (clusters > 0) {
      launch(cluster_kernel, clusters, input, input_stride, weight, output,
             output_stride, rrms, rows, hidden, inverse_hidden, static_cast<acc_t>(eps),
             keep);
      return launch_error();
    }
  }
#endif
  const auto [kernel, block] =
      rms_norm_form<scalar_t, weight_t, kAligned, NoResidual>(rows, hidden, weight);
  kernel<<<grid_of_rows(rows, block), block, 0, static_cast<gpuStream_t>(stream)>>>(
      input, input_stride, NoResidual{}, weight, output, output_stride, rrms, rows,
      hidden, inverse_hidden, static_cast<acc_t>(eps), keep);
  return launch_error();
}

template <typename scalar_t, typename weight_t>
const char* launch_rms_norm(const scalar_t* input, int64_t input_stride,
                            const weight_t* weight, scalar_t* output,
                            int64_t output_stride, accumulate_t<scalar_t>* rrms,
                            int64_t rows, int64_t hidden, double eps, void* stream) {
  constexpr int kWidth = kElements<scalar_t>;
  const bool aligned = hidden % kWidth == 0 && is_vector_aligned(weight) &&
                       rows_are_aligned(input, input_stride, rows) &&
                       rows_are_aligned(output, output_stride, rows);
  const auto launch = aligned ? launch_rows<scalar_t, weight_t, true>
                              : launch_rows<scalar_t, weight_t, false>;
  return launch(input, input_stride, weight, output, output_stride, rrms, rows, hidden,
                eps, stream);
}
// [/launch]

#define OPBOOK_INSTANTIATE(scalar_t, weight_t)                                      \
  template const char* launch_rms_norm(const scalar_t*, int64_t, const weight_t*,   \
                                       scalar_t*, int64_t, accumulate_t<scalar_t>*, \
                                       int64_t, int64_t, double, void*)
OPBOOK_FOR_INPUT_AND_WEIGHT(OPBOOK_INSTANTIATE);

}  // namespace opbook

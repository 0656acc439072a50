// The GPU launcher. nvcc compiles this file for CUDA, HIP's clang for ROCm. It knows
// raw pointers and a stream; tensors, checks and registration live in rms_norm_op.cpp.
#include <algorithm>

#include "rms_norm.h"

namespace opbook {

// [launch]
template <typename scalar_t, typename weight_t, int kWidth, bool kAligned>
const char* launch_rows(const scalar_t* input, int64_t input_stride,
                        const weight_t* weight, scalar_t* output, int64_t output_stride,
                        accumulate_t<scalar_t>* rrms, int64_t rows, int64_t hidden,
                        double eps, void* stream) {
  using acc_t = accumulate_t<scalar_t>;
  const acc_t inverse_hidden = acc_t(1) / static_cast<acc_t>(hidden);
  const Keep keep = what_to_keep(rows * hidden * sizeof(scalar_t));
  const auto [kernel, block] =
      rms_norm_form<scalar_t, weight_t, kWidth, kAligned, NoResidual>(rows, hidden,
                                                                      weight);
#if defined(OPBOOK_CLUSTERS)
  const int64_t vectors = Columns<kWidth, kAligned>::most_vectors(hidden);
  const auto cluster_kernel =
      rms_norm_cluster_kernel<scalar_t, weight_t, kWidth, kAligned>;
  if (vectors > 2 * kMaxThreads && vectors <= kClusterVectors &&
      !(rows > kRowsWithoutClusters && fits_twice(kernel, block)) &&
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
  return with_width<scalar_t>(
      hidden,
      {alignment_of(input, input_stride, rows, hidden),
       alignment_of(output, output_stride, rows, hidden)},
      weight, [&]<int kWidth, bool kAligned>() {
        return launch_rows<scalar_t, weight_t, kWidth, kAligned>(
            input, input_stride, weight, output, output_stride, rrms, rows, hidden, eps,
            stream);
      });
}
// [/launch]

#define OPBOOK_INSTANTIATE(scalar_t, weight_t)                                      \
  template const char* launch_rms_norm(const scalar_t*, int64_t, const weight_t*,   \
                                       scalar_t*, int64_t, accumulate_t<scalar_t>*, \
                                       int64_t, int64_t, double, void*)
OPBOOK_FOR_INPUT_AND_WEIGHT(OPBOOK_INSTANTIATE);

}  // namespace opbook

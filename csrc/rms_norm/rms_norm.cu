// The GPU launcher. nvcc compiles this file for CUDA, HIP's clang for ROCm. It knows
// raw pointers and a stream; tensors, checks and registration live in rms_norm_op.cpp.
#include <algorithm>

#include "rms_norm.h"

namespace opbook {

namespace {

// A kernel and its block.
template <typename Kernel>
struct Launch {
  Kernel kernel;
  dim3 block;
};

}  // namespace

// [launch]
// Which kernel a row of so many vectors takes, in which form, and with which block.
template <typename scalar_t, typename weight_t, int kWidth>
auto rms_norm_form(int64_t rows, int64_t vectors, bool has_weight) {
  if (rows <= kFewRows && has_weight) {
    constexpr int kFew = kBlockThreads, kMore = 2 * kBlockThreads;
    if (vectors <= kFewRowsKept * kFew) {
      return Launch{rms_norm_few_rows_kernel<scalar_t, weight_t, kFew, kWidth>,
                    dim3(kFew)};
    }
    if (vectors <= kFewRowsKept * kMore) {
      return Launch{rms_norm_few_rows_kernel<scalar_t, weight_t, kMore, kWidth>,
                    dim3(kMore)};
    }
  }
  const auto form = [&](auto kernel, int kept) {
    return Launch{kernel, block_of_rows((vectors + kept - 1) / kept, kShortRowThreads)};
  };
  if (vectors <= 2 * kBlockThreads) {
    return form(rms_norm_kernel<scalar_t, weight_t, 2, kWidth>, 2);
  }
  if (rows > kFewRows && vectors > 4 * kBlockThreads && vectors <= 8 * kBlockThreads) {
    return form(rms_norm_kernel<scalar_t, weight_t, 8, kWidth>, 8);
  }
  if (vectors <= 4 * kMaxThreads) {
    return form(rms_norm_kernel<scalar_t, weight_t, 4, kWidth>, 4);
  }
  return form(rms_norm_kernel<scalar_t, weight_t, 0, kWidth>, 1);
}

template <typename scalar_t, typename weight_t>
const char* launch_rms_norm(const scalar_t* input, int64_t input_stride,
                            const weight_t* weight, scalar_t* output,
                            int64_t output_stride, accumulate_t<scalar_t>* rrms,
                            int64_t rows, int64_t hidden, double eps, void* stream) {
  using acc_t = accumulate_t<scalar_t>;
  constexpr int kWidth = kVectorBytes / sizeof(scalar_t);
  const bool vectorized = hidden % kWidth == 0 && is_vector_aligned(weight) &&
                          rows_are_aligned(input, input_stride, rows) &&
                          rows_are_aligned(output, output_stride, rows);
  const int64_t vectors = hidden / kWidth;
  const acc_t inverse_hidden = acc_t(1) / static_cast<acc_t>(hidden);
  const Keep keep = what_to_keep(rows * hidden * sizeof(scalar_t));
#if defined(OPBOOK_CLUSTERS)
  const auto cluster_kernel = rms_norm_cluster_kernel<scalar_t, weight_t, kWidth>;
  if (vectorized && vectors > 2 * kMaxThreads &&
      vectors <= kClusterKept * kClusterThreads * kClusterBlocks &&
      has_clusters(cluster_kernel)) {
    const int64_t share = (vectors + kClusterBlocks - 1) / kClusterBlocks;
    ClusterLaunch<kClusterBlocks> launch(
        threads_for((share + kClusterKept - 1) / kClusterKept), stream);
    const int64_t clusters = std::min(rows, launch.clusters_at_a_time(cluster_kernel));
    if (clusters > 0) {
      launch(cluster_kernel, clusters, input, input_stride, weight, output,
             output_stride, rrms, rows, hidden, inverse_hidden, static_cast<acc_t>(eps),
             keep);
      return launch_error();
    }
  }
#endif
  const auto [kernel, block] =
      vectorized ? rms_norm_form<scalar_t, weight_t, kWidth>(rows, vectors, weight)
                 : Launch{rms_norm_kernel<scalar_t, weight_t, 0, 1>,
                          block_of_rows(hidden, kShortRowThreads)};
  kernel<<<grid_of_rows(rows, block), block, 0, static_cast<gpuStream_t>(stream)>>>(
      input, input_stride, weight, output, output_stride, rrms, rows, hidden,
      inverse_hidden, static_cast<acc_t>(eps), keep);
  return launch_error();
}
// [/launch]

#define OPBOOK_INSTANTIATE(scalar_t, weight_t)                                      \
  template const char* launch_rms_norm(const scalar_t*, int64_t, const weight_t*,   \
                                       scalar_t*, int64_t, accumulate_t<scalar_t>*, \
                                       int64_t, int64_t, double, void*)
OPBOOK_FOR_INPUT_AND_WEIGHT(OPBOOK_INSTANTIATE);

}  // namespace opbook

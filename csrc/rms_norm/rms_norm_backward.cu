// The GPU launcher of the gradients, in the manner of rms_norm.cu.
#include <algorithm>

#include "rms_norm_backward.h"

namespace opbook {

namespace {

constexpr int kColumnThreads = 256;
constexpr int64_t kMaxRows = 1 << 30;  // the fused kernel counts in int

// [paths]
enum class BackwardPath {
  kTwoKernels,  // which read both tensors each
  kFewRows,     // a kernel with little code
  kShortRows,   // a thread keeps two vectors
  kManyRows,    // a thread keeps four
  kCluster,     // eight blocks share a row
};

// The first line that fits.
BackwardPath backward_path_of(int64_t rows, int64_t vectors, bool has_clusters) {
  // clang-format off
  if (rows > kMaxRows)                        return BackwardPath::kTwoKernels;
  if (rows <= 256 && vectors <= kMaxThreads)  return BackwardPath::kFewRows;
  if (vectors <= kShortKept * kMinWarpSize)   return BackwardPath::kShortRows;
  if (vectors <= 2048)                        return BackwardPath::kManyRows;
  if (vectors <= 8192 && has_clusters)        return BackwardPath::kCluster;
  return                                             BackwardPath::kTwoKernels;
  // clang-format on
}
// [/paths]

// How the work is divided.
struct Plan {
  BackwardPath path;
  int64_t chunks;  // partial sums of the weight's gradient
  dim3 block;      // threads of a row, rows
};

// Blocks that walk through the rows, as many as a GPU holds at once. If a thread gets
// several rows, the number of blocks is a multiple of `same_cut`: 1 for aligned rows,
// the elements of a vector for others. So all rows of a thread are cut in the same
// places.
Plan many_rows(BackwardPath path, int64_t vectors, int64_t rows, int64_t same_cut) {
  const int kept = path == BackwardPath::kShortRows ? kShortKept : kBackwardKept;
  int64_t threads = (vectors + kept - 1) / kept;
  if (path == BackwardPath::kManyRows)
    threads = threads_for(threads);  // RowSum needs warps
  const dim3 block = block_of_rows(threads, kSharedThreads);
  const int resident_threads = backward_blocks(kept) * backward_threads(kept);
  const int blocks_at_a_time = resident_threads / (block.x * block.y);
  const int64_t wanted = (rows + block.y - 1) / block.y;
  // A chunk costs as much as a row: beyond one a multiprocessor, it has two rows.
  const int64_t worth = std::max<int64_t>(multiprocessors(), (rows + 1) / 2);
  const int64_t most = std::min<int64_t>(multiprocessors() * blocks_at_a_time, worth);
  return {path, std::min(wanted, std::max(most / same_cut, int64_t{1}) * same_cut),
          block};
}

template <typename scalar_t, bool kAligned>
Plan plan_for(int64_t rows, int64_t hidden) {
  constexpr int kWidth = kElements<scalar_t>;
  constexpr int kSameCut = kAligned ? 1 : kWidth;
  const int64_t vectors = Columns<kWidth, kAligned>::most_vectors(hidden);
#if defined(OPBOOK_CLUSTERS)
  const auto kernel = rms_norm_backward_kernel<scalar_t, scalar_t, kBackwardKept,
                                               kClusterBlocks, false, kAligned>;
  if (backward_path_of(rows, vectors, true) == BackwardPath::kCluster &&
      has_clusters(kernel)) {
    const int64_t share = (vectors + kClusterBlocks - 1) / kClusterBlocks;
    const int threads = threads_for((share + kBackwardKept - 1) / kBackwardKept);
    ClusterLaunch<kClusterBlocks> launch(threads, nullptr);
    const int64_t most = launch.clusters_at_a_time(kernel) / kSameCut * kSameCut;
    if (most > 0) return {BackwardPath::kCluster, std::min(rows, most), threads};
  }
#endif
  const BackwardPath path = backward_path_of(rows, vectors, false);
  if (path == BackwardPath::kTwoKernels) return {path, std::min<int64_t>(rows, 128)};
  if (path == BackwardPath::kFewRows) return {path, rows, threads_for(vectors)};
  return many_rows(path, vectors, rows, kSameCut);
}

}  // namespace

template <typename scalar_t>
int64_t rms_norm_backward_chunks(int64_t rows, int64_t hidden) {
  // Only the launcher knows the addresses, and so whether the rows are aligned.
  return std::max(plan_for<scalar_t, true>(rows, hidden).chunks,
                  plan_for<scalar_t, false>(rows, hidden).chunks);
}

// The kernel of both gradients that a plan asks for.
template <typename scalar_t, typename weight_t, bool kAdds, bool kAligned>
auto fused_kernel(BackwardPath path) {
  if (path == BackwardPath::kFewRows) {
    return rms_norm_backward_few_rows_kernel<scalar_t, weight_t, kAdds, kAligned>;
  }
  if (path == BackwardPath::kShortRows) {
    return rms_norm_backward_kernel<scalar_t, weight_t, kShortKept, 1, kAdds, kAligned>;
  }
#if defined(OPBOOK_CLUSTERS)
  if (path == BackwardPath::kCluster) {
    return rms_norm_backward_kernel<scalar_t, weight_t, kBackwardKept, kClusterBlocks,
                                    kAdds, kAligned>;
  }
#endif
  return rms_norm_backward_kernel<scalar_t, weight_t, kBackwardKept, 1, kAdds,
                                  kAligned>;
}

// Adds up the chunks.
template <typename acc_t, typename weight_t>
void launch_sum_chunks(const acc_t* partial, weight_t* total, int64_t chunks,
                       int64_t hidden, void* stream) {
  const int64_t blocks = (hidden + kColumns - 1) / kColumns;
  const dim3 threads(kColumns, std::min<int64_t>(chunks, kMaxThreads / kColumns));
  const auto kernel = sum_chunks_kernel<acc_t, weight_t>;
#if defined(OPBOOK_CLUSTERS)
  if (has_clusters(kernel)) {
    return EarlyLaunch(threads, stream)(kernel, blocks, partial, total, chunks, hidden);
  }
#endif
  kernel<<<blocks, threads, 0, static_cast<gpuStream_t>(stream)>>>(partial, total,
                                                                   chunks, hidden);
}

template <typename scalar_t, typename weight_t>
const char* launch_rms_norm_backward(
    const scalar_t* grad, int64_t grad_stride, const scalar_t* input,
    int64_t input_stride, const weight_t* weight, const accumulate_t<scalar_t>* rrms,
    const scalar_t* added, scalar_t* grad_input, accumulate_t<scalar_t>* partial,
    weight_t* grad_weight, int64_t rows, int64_t hidden, void* stream) {
  const auto gpu_stream = static_cast<gpuStream_t>(stream);
  const auto inverse_hidden =
      accumulate_t<scalar_t>(1) / static_cast<accumulate_t<scalar_t>>(hidden);
  const bool all_aligned =
      is_vector_aligned(weight) && is_vector_aligned(added) &&
      is_vector_aligned(grad_input) && is_vector_aligned(partial) &&
      is_vector_aligned(grad_weight) &&
      std::min(alignment_of(grad, grad_stride, rows, hidden),
               alignment_of(input, input_stride, rows, hidden)) == kVectorBytes;

  const auto launch_fused = [&](auto kernel, const Plan& plan) {
    accumulate_t<scalar_t>* const sums = grad_weight ? partial : nullptr;
#if defined(OPBOOK_CLUSTERS)
    if (plan.path == BackwardPath::kCluster) {
      ClusterLaunch<kClusterBlocks> launch(plan.block.x, stream);
      return launch(kernel, plan.chunks, grad, grad_stride, input, input_stride, weight,
                    rrms, added, grad_input, sums, grad_weight, int(rows), int(hidden),
                    inverse_hidden);
    }
#endif
    kernel<<<plan.chunks, plan.block, 0, gpu_stream>>>(
        grad, grad_stride, input, input_stride, weight, rrms, added, grad_input, sums,
        grad_weight, int(rows), int(hidden), inverse_hidden);
  };
  const auto launch_two = [&](auto kernel, const Plan& plan) {
    const int threads =
        threads_for(Columns<kElements<scalar_t>, false>::most_vectors(hidden));
    const dim3 columns((hidden + kColumnThreads - 1) / kColumnThreads, plan.chunks);
    if (grad_input != nullptr) {
      kernel<<<grid_of_rows(rows, threads), threads, 0, gpu_stream>>>(
          grad, grad_stride, input, input_stride, weight, rrms, added, grad_input, rows,
          hidden, inverse_hidden);
    }
    if (grad_weight != nullptr) {
      rms_norm_weight_gradient_kernel<scalar_t>
          <<<columns, kColumnThreads, 0, gpu_stream>>>(
              grad, grad_stride, input, input_stride, rrms, partial, rows, hidden);
    }
  };
  const auto launch_kernels = [&]<bool kAligned>() {
    const Plan plan = plan_for<scalar_t, kAligned>(rows, hidden);
    if (plan.path == BackwardPath::kTwoKernels) {
      launch_two(rms_norm_input_gradient_kernel<scalar_t, weight_t, kAligned>, plan);
    } else if (added != nullptr) {
      launch_fused(fused_kernel<scalar_t, weight_t, true, kAligned>(plan.path), plan);
    } else {
      launch_fused(fused_kernel<scalar_t, weight_t, false, kAligned>(plan.path), plan);
    }
    return plan;
  };
  const Plan plan = all_aligned ? launch_kernels.template operator()<true>()
                                : launch_kernels.template operator()<false>();
  if (const char* error = launch_error()) return error;
  const bool is_whole = plan.chunks == 1 && plan.path != BackwardPath::kTwoKernels;
  if (grad_weight == nullptr || is_whole) return nullptr;
  launch_sum_chunks(partial, grad_weight, plan.chunks, hidden, stream);
  return launch_error();
}

#define OPBOOK_INSTANTIATE(scalar_t, weight_t)                             \
  template const char* launch_rms_norm_backward(                           \
      const scalar_t*, int64_t, const scalar_t*, int64_t, const weight_t*, \
      const accumulate_t<scalar_t>*, const scalar_t*, scalar_t*,           \
      accumulate_t<scalar_t>*, weight_t*, int64_t, int64_t, void*)
OPBOOK_FOR_INPUT_AND_WEIGHT(OPBOOK_INSTANTIATE);

template int64_t rms_norm_backward_chunks<c10::Half>(int64_t, int64_t);
template int64_t rms_norm_backward_chunks<c10::BFloat16>(int64_t, int64_t);
template int64_t rms_norm_backward_chunks<float>(int64_t, int64_t);
template int64_t rms_norm_backward_chunks<double>(int64_t, int64_t);

}  // namespace opbook

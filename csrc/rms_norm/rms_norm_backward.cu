// The GPU launcher of the gradients, in the manner of rms_norm.cu.
#include <algorithm>

#include "rms_norm_backward.h"

namespace opbook {

namespace {

constexpr int kColumnThreads = 256;
constexpr int64_t kMaxRows = 1 << 30;  // the fused kernel counts in int

enum class Kernel { kAnyRow, kFewRows, kShortRows, kManyRows, kCluster };

// How the work is divided.
struct Plan {
  Kernel kernel;
  int64_t chunks;  // partial sums of the weight's gradient
  dim3 block;      // threads of a row, rows
};

// Blocks that walk through the rows, as many as a GPU holds at once. If a thread gets
// several rows, the number of blocks is a multiple of `alike`: 1 for aligned rows, the
// elements of a vector for others. So all rows of a thread are cut in the same places.
Plan many_rows(Kernel kernel, int kept, int64_t threads_of_row, int64_t rows,
               int64_t alike) {
  const dim3 block = block_of_rows(threads_of_row, kSharedThreads);
  const int resident_threads = backward_blocks(kept) * backward_threads(kept);
  const int blocks_at_a_time = resident_threads / (block.x * block.y);
  const int64_t wanted = (rows + block.y - 1) / block.y;
  // A chunk costs as much as a row: beyond one a multiprocessor, it has two rows.
  const int64_t worth = std::max<int64_t>(multiprocessors(), (rows + 1) / 2);
  const int64_t most = std::min<int64_t>(multiprocessors() * blocks_at_a_time, worth);
  return {kernel, std::min(wanted, std::max(most / alike, int64_t{1}) * alike), block};
}

template <typename scalar_t, bool kAligned>
Plan plan_for(int64_t rows, int64_t hidden) {
  constexpr int kWidth = kElements<scalar_t>;
  constexpr int alike = kAligned ? 1 : kWidth;
  const int64_t vectors = Columns<kWidth, kAligned>::most_vectors(hidden);
  const Plan any_row{Kernel::kAnyRow, std::min<int64_t>(rows, 128)};
  if (rows > kMaxRows) return any_row;
  const bool is_short = vectors <= kShortKept * kMinWarpSize;
  if (rows <= 256 && vectors <= kMaxThreads) {
    return {Kernel::kFewRows, rows, threads_for(vectors)};
  }
  if (is_short) {
    const int64_t threads = (vectors + kShortKept - 1) / kShortKept;
    return many_rows(Kernel::kShortRows, kShortKept, threads, rows, alike);
  }
  if (vectors <= kBackwardKept * kBackwardThreads) {
    const int threads = threads_for((vectors + kBackwardKept - 1) / kBackwardKept);
    return many_rows(Kernel::kManyRows, kBackwardKept, threads, rows, alike);
  }
#if defined(OPBOOK_CLUSTERS)
  const auto kernel = rms_norm_backward_kernel<scalar_t, scalar_t, kBackwardKept,
                                               kClusterBlocks, false, kAligned>;
  if (vectors <= kBackwardKept * kClusterThreads * kClusterBlocks &&
      has_clusters(kernel)) {
    const int64_t share = (vectors + kClusterBlocks - 1) / kClusterBlocks;
    const int threads = threads_for((share + kBackwardKept - 1) / kBackwardKept);
    ClusterLaunch<kClusterBlocks> launch(threads, nullptr);
    const int64_t most = launch.clusters_at_a_time(kernel) / alike * alike;
    if (most > 0) return {Kernel::kCluster, std::min(rows, most), threads};
  }
#endif
  return any_row;
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
auto fused_kernel(Kernel kernel) {
  if (kernel == Kernel::kFewRows) {
    return rms_norm_backward_few_rows_kernel<scalar_t, weight_t, kAdds, kAligned>;
  }
  if (kernel == Kernel::kShortRows) {
    return rms_norm_backward_kernel<scalar_t, weight_t, kShortKept, 1, kAdds, kAligned>;
  }
#if defined(OPBOOK_CLUSTERS)
  if (kernel == Kernel::kCluster) {
    return rms_norm_backward_kernel<scalar_t, weight_t, kBackwardKept, kClusterBlocks,
                                    kAdds, kAligned>;
  }
#endif
  return rms_norm_backward_kernel<scalar_t, weight_t, kBackwardKept, 1, kAdds,
                                  kAligned>;
}

template <typename scalar_t, typename weight_t>
const char* launch_rms_norm_backward(
    const scalar_t* grad, int64_t grad_stride, const scalar_t* input,
    int64_t input_stride, const weight_t* weight, const accumulate_t<scalar_t>* rrms,
    const scalar_t* added, scalar_t* grad_input, accumulate_t<scalar_t>* partial,
    weight_t* grad_weight, int64_t rows, int64_t hidden, void* stream) {
  using acc_t = accumulate_t<scalar_t>;
  constexpr int kWidth = kElements<scalar_t>;
  const auto gpu_stream = static_cast<gpuStream_t>(stream);
  const bool aligned =
      is_vector_aligned(weight) && is_vector_aligned(added) &&
      is_vector_aligned(grad_input) && is_vector_aligned(partial) &&
      is_vector_aligned(grad_weight) &&
      std::min(alignment_of(grad, grad_stride, rows, hidden),
               alignment_of(input, input_stride, rows, hidden)) == kVectorBytes;
  const Plan plan = aligned ? plan_for<scalar_t, true>(rows, hidden)
                            : plan_for<scalar_t, false>(rows, hidden);
  const acc_t inverse_hidden = acc_t(1) / static_cast<acc_t>(hidden);
  acc_t* const sums = grad_weight ? partial : nullptr;
  const bool fused = plan.kernel != Kernel::kAnyRow;
  const auto kernel_of = [&]<bool kAdds>() {
    return aligned ? fused_kernel<scalar_t, weight_t, kAdds, true>(plan.kernel)
                   : fused_kernel<scalar_t, weight_t, kAdds, false>(plan.kernel);
  };
  const auto kernel_of_both = added ? kernel_of.template operator()<true>()
                                    : kernel_of.template operator()<false>();
  if (fused && plan.kernel != Kernel::kCluster) {
    kernel_of_both<<<plan.chunks, plan.block, 0, gpu_stream>>>(
        grad, grad_stride, input, input_stride, weight, rrms, added, grad_input, sums,
        grad_weight, int(rows), int(hidden), inverse_hidden);
#if defined(OPBOOK_CLUSTERS)
  } else if (fused) {
    ClusterLaunch<kClusterBlocks>(plan.block.x, stream)(
        kernel_of_both, plan.chunks, grad, grad_stride, input, input_stride, weight,
        rrms, added, grad_input, sums, grad_weight, int(rows), int(hidden),
        inverse_hidden);
#endif
  } else {
    const auto kernel = aligned
                            ? rms_norm_input_gradient_kernel<scalar_t, weight_t, true>
                            : rms_norm_input_gradient_kernel<scalar_t, weight_t, false>;
    const int threads = threads_for(Columns<kWidth, false>::most_vectors(hidden));
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
  }
  if (const char* error = launch_error()) return error;
  if (grad_weight == nullptr || (fused && plan.chunks == 1)) return nullptr;
  const int64_t blocks = (hidden + kColumns - 1) / kColumns;
  const dim3 threads(kColumns, std::min<int64_t>(plan.chunks, kMaxThreads / kColumns));
  const auto sum_chunks = sum_chunks_kernel<acc_t, weight_t>;
#if defined(OPBOOK_CLUSTERS)
  if (has_clusters(sum_chunks)) {
    EarlyLaunch(threads, stream)(sum_chunks, blocks, partial, grad_weight, plan.chunks,
                                 hidden);
    return launch_error();
  }
#endif
  sum_chunks<<<blocks, threads, 0, gpu_stream>>>(partial, grad_weight, plan.chunks,
                                                 hidden);
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

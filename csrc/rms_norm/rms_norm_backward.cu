// The GPU launcher of the gradients, in the manner of rms_norm.cu.
#include "rms_norm_backward.h"

#include <algorithm>

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
// several rows, the number of blocks is a multiple of `row_multiple`: 1 for aligned
// rows, the elements of a vector for others. So all rows of a thread are cut in the
// same places.
Plan many_rows(BackwardPath path, int64_t vectors, int64_t rows, int64_t row_multiple) {
  const int kept = path == BackwardPath::kShortRows ? kShortKept : kBackwardKept;
  int64_t threads = (vectors + kept - 1) / kept;
  // RowSum needs whole warps.
  if (path == BackwardPath::kManyRows) threads = threads_for(threads);
  const dim3 block = block_of_rows(threads, kSharedThreads);
  const int resident_threads = backward_blocks(kept) * backward_threads(kept);
  const int blocks_at_a_time = resident_threads / (block.x * block.y);
  const int64_t wanted = (rows + block.y - 1) / block.y;
  // A chunk costs as much as a row: beyond one a multiprocessor, it has two rows.
  const int64_t useful = std::max<int64_t>(multiprocessors(), (rows + 1) / 2);
  const int64_t most = std::min<int64_t>(multiprocessors() * blocks_at_a_time, useful);
  return {path,
          std::min(wanted, std::max(most / row_multiple, int64_t{1}) * row_multiple),
          block};
}

template <typename T, bool kAligned>
Plan plan_for(int64_t rows, int64_t hidden) {
  constexpr int kWidth = kElements<T>;
  constexpr int kRowMultiple = kAligned ? 1 : kWidth;
  const int64_t vectors = Columns<kWidth, kAligned>::most_vectors(hidden);
#if defined(OPBOOK_CLUSTERS)
  const auto kernel =
      rms_norm_backward_kernel<T, T, kBackwardKept, kClusterBlocks, false, kAligned>;
  if (backward_path_of(rows, vectors, true) == BackwardPath::kCluster &&
      has_clusters(kernel)) {
    const int64_t share = (vectors + kClusterBlocks - 1) / kClusterBlocks;
    const int threads = threads_for((share + kBackwardKept - 1) / kBackwardKept);
    ClusterLaunch<kClusterBlocks> launch(threads, nullptr);
    const int64_t most =
        launch.clusters_at_a_time(kernel) / kRowMultiple * kRowMultiple;
    if (most > 0) return {BackwardPath::kCluster, std::min(rows, most), threads};
  }
#endif
  const BackwardPath path = backward_path_of(rows, vectors, false);
  if (path == BackwardPath::kTwoKernels) return {path, std::min<int64_t>(rows, 128)};
  if (path == BackwardPath::kFewRows) return {path, rows, threads_for(vectors)};
  return many_rows(path, vectors, rows, kRowMultiple);
}

}  // namespace

template <typename T>
int64_t rms_norm_backward_chunks(int64_t rows, int64_t hidden) {
  // Only the launcher knows the addresses, and so whether the rows are aligned.
  return std::max(plan_for<T, true>(rows, hidden).chunks,
                  plan_for<T, false>(rows, hidden).chunks);
}

// The kernel of both gradients that a plan asks for.
template <typename T, typename W, bool kAdds, bool kAligned>
auto fused_kernel(BackwardPath path) {
  if (path == BackwardPath::kFewRows) {
    return rms_norm_backward_few_rows_kernel<T, W, kAdds, kAligned>;
  }
  if (path == BackwardPath::kShortRows) {
    return rms_norm_backward_kernel<T, W, kShortKept, 1, kAdds, kAligned>;
  }
#if defined(OPBOOK_CLUSTERS)
  if (path == BackwardPath::kCluster) {
    return rms_norm_backward_kernel<T, W, kBackwardKept, kClusterBlocks, kAdds,
                                    kAligned>;
  }
#endif
  return rms_norm_backward_kernel<T, W, kBackwardKept, 1, kAdds, kAligned>;
}

// Adds up the chunks.
template <typename C, typename W>
void launch_sum_chunks(const C* partial, W* total, int64_t chunks, int64_t hidden,
                       void* stream) {
  const int64_t blocks = (hidden + kColumns - 1) / kColumns;
  const dim3 threads(kColumns, std::min<int64_t>(chunks, kMaxThreads / kColumns));
  const auto kernel = sum_chunks_kernel<C, W>;
#if defined(OPBOOK_CLUSTERS)
  if (has_clusters(kernel)) {
    return EarlyLaunch(threads, stream)(kernel, blocks, partial, total, chunks, hidden);
  }
#endif
  kernel<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(partial, total,
                                                                    chunks, hidden);
}

// One kernel, which computes both gradients.
template <bool kAdded, bool kAligned, typename T, typename W>
void launch_fused(const rms_norm_backward_args<T, W>& args, const Plan& plan,
                  void* stream) {
  const auto kernel = fused_kernel<T, W, kAdded, kAligned>(plan.path);
  const int rows = static_cast<int>(args.rows), hidden = static_cast<int>(args.hidden);
  const auto inverse_hidden = compute_t<T>(1) / static_cast<compute_t<T>>(hidden);
  compute_t<T>* const partial = args.grad_weight ? args.partial : nullptr;
#if defined(OPBOOK_CLUSTERS)
  if (plan.path == BackwardPath::kCluster) {
    ClusterLaunch<kClusterBlocks> launch(plan.block.x, stream);
    return launch(kernel, plan.chunks * kClusterBlocks, args.grad.data,
                  args.grad.stride, args.input.data, args.input.stride, args.weight,
                  args.rrms, args.added, args.grad_input, partial, args.grad_weight,
                  rows, hidden, inverse_hidden);
  }
#endif
  kernel<<<plan.chunks, plan.block, 0, static_cast<cudaStream_t>(stream)>>>(
      args.grad.data, args.grad.stride, args.input.data, args.input.stride, args.weight,
      args.rrms, args.added, args.grad_input, partial, args.grad_weight, rows, hidden,
      inverse_hidden);
}

template <bool kAligned, typename T, typename W>
void launch_two_kernels(const rms_norm_backward_args<T, W>& args, const Plan& plan,
                        void* stream) {
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  const auto inverse_hidden = compute_t<T>(1) / static_cast<compute_t<T>>(args.hidden);
  const int threads =
      threads_for(Columns<kElements<T>, false>::most_vectors(args.hidden));
  const dim3 columns((args.hidden + kColumnThreads - 1) / kColumnThreads, plan.chunks);
  const auto kernel = rms_norm_input_gradient_kernel<T, W, kAligned>;
  if (args.grad_input != nullptr) {
    kernel<<<grid_of_rows(args.rows, threads), threads, 0, cuda_stream>>>(
        args.grad.data, args.grad.stride, args.input.data, args.input.stride,
        args.weight, args.rrms, args.added, args.grad_input, args.rows, args.hidden,
        inverse_hidden);
  }
  if (args.grad_weight != nullptr) {
    rms_norm_weight_gradient_kernel<T><<<columns, kColumnThreads, 0, cuda_stream>>>(
        args.grad.data, args.grad.stride, args.input.data, args.input.stride, args.rrms,
        args.partial, args.rows, args.hidden);
  }
}

template <bool kAligned, typename T, typename W>
const char* launch_rows(const rms_norm_backward_args<T, W>& args, void* stream) {
  const Plan plan = plan_for<T, kAligned>(args.rows, args.hidden);
  if (plan.path == BackwardPath::kTwoKernels) {
    launch_two_kernels<kAligned>(args, plan, stream);
  } else if (args.added != nullptr) {
    launch_fused<true, kAligned>(args, plan, stream);
  } else {
    launch_fused<false, kAligned>(args, plan, stream);
  }
  const char* const error = launch_error();
  const bool is_whole = plan.chunks == 1 && plan.path != BackwardPath::kTwoKernels;
  if (error != nullptr || args.grad_weight == nullptr || is_whole) return error;
  launch_sum_chunks(args.partial, args.grad_weight, plan.chunks, args.hidden, stream);
  return launch_error();
}

template <typename T, typename W>
const char* launch_rms_norm_backward(const rms_norm_backward_args<T, W>& args,
                                     void* stream) {
  const int alignment = std::min(alignment_of(args.grad, args.rows, args.hidden),
                                 alignment_of(args.input, args.rows, args.hidden));
  const bool aligned =
      alignment == kVectorBytes && is_vector_aligned(args.weight) &&
      is_vector_aligned(args.added) && is_vector_aligned(args.grad_input) &&
      is_vector_aligned(args.partial) && is_vector_aligned(args.grad_weight);
  return aligned ? launch_rows<true>(args, stream) : launch_rows<false>(args, stream);
}

#define OPBOOK_INSTANTIATE(T, W)                                                     \
  template const char* launch_rms_norm_backward(const rms_norm_backward_args<T, W>&, \
                                                void*)
OPBOOK_FOR_INPUT_AND_WEIGHT(OPBOOK_INSTANTIATE);

template int64_t rms_norm_backward_chunks<c10::Half>(int64_t, int64_t);
template int64_t rms_norm_backward_chunks<c10::BFloat16>(int64_t, int64_t);
template int64_t rms_norm_backward_chunks<float>(int64_t, int64_t);
template int64_t rms_norm_backward_chunks<double>(int64_t, int64_t);

}  // namespace opbook

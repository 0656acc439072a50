// draw::reserve for CUDA: seed and offset as PyTorch's own kernels get them.
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/library.h>

#include <mutex>
#include <optional>

// [cuda]
// Moves the offset by four words, as many as a group of elements uses. In a capture,
// the numbers are in memory that each replay fills anew.
at::Tensor reserve_cuda(const at::Tensor& like,
                        std::optional<at::Generator> generator) {
  auto* found = at::get_generator_or_default<at::CUDAGeneratorImpl>(
      generator, at::cuda::detail::getDefaultCUDAGenerator(like.get_device()));
  const std::lock_guard<std::mutex> lock(found->mutex_);
  const at::PhiloxCudaState state = found->philox_cuda_state(4);
  const auto options = like.options().dtype(at::kLong);
  if (state.captured_) {
    const auto in_graph = static_cast<int64_t>(state.offset_intragraph_);
    const at::Tensor seed = at::from_blob(state.seed_.ptr, {1}, options);
    const at::Tensor offset = at::from_blob(state.offset_.ptr, {1}, options);
    return at::cat({seed, offset.add(in_graph)});
  }
  const at::Tensor result = at::empty({2}, options);
  result[0].fill_(static_cast<int64_t>(state.seed_.val));
  result[1].fill_(static_cast<int64_t>(state.offset_.val));
  return result;
}

TORCH_LIBRARY_IMPL(draw, CUDA, m) { m.impl("reserve", &reserve_cuda); }
// [/cuda]

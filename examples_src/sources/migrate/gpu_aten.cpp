// Registered for CUDA with ATen. The kernel and its launch are in a .cu file.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <optional>

// [gpu]
using Rows = at::PackedTensorAccessor32<float, 2>;

void launch_scan(Rows x, const float* decay, Rows y, void* stream);

at::Tensor scan(const at::Tensor& x, const std::optional<at::Tensor>& decay) {
  const at::cuda::CUDAGuard guard(x.device());
  at::Tensor y = at::empty_like(x);
  launch_scan(x.packed_accessor32<float, 2>(),
              decay.has_value() ? decay->data_ptr<float>() : nullptr,
              y.packed_accessor32<float, 2>(), at::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

TORCH_LIBRARY_IMPL(migrated, CUDA, m) { m.impl("scan", &scan); }
// [/gpu]

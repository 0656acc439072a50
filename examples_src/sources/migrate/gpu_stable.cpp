// Registered for CUDA with the stable ABI. Compile it with -DUSE_CUDA.
#include <cuda_runtime.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/core/TensorAccessor.h>

#include <optional>

using torch::stable::Tensor;

// [gpu]
template <typename T>
using Rows = torch::headeronly::HeaderOnlyGenericPackedTensorAccessor<T, 2>;

void launch_scan(Rows<const float> x, const float* decay, Rows<float> y, void* stream);

Tensor scan(const Tensor& x, const std::optional<Tensor>& decay) {
  STD_TORCH_CHECK(x.dim() == 2, "x must have rows");
  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_get_current_cuda_stream(x.get_device_index(), &stream));
  Tensor y = torch::stable::empty_like(x);
  launch_scan({x.const_data_ptr<float>(), x.sizes().data(), x.strides().data()},
              decay.has_value() ? decay->const_data_ptr<float>() : nullptr,
              {y.mutable_data_ptr<float>(), y.sizes().data(), y.strides().data()},
              stream);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

STABLE_TORCH_LIBRARY_IMPL(migrated, CUDA, m) { m.impl("scan", TORCH_BOX(&scan)); }
// [/gpu]

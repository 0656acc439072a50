// Stage 3: the stable ABI. The types and macros come from other headers.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/Dispatch_v2.h>
#include <torch/headeronly/core/TensorAccessor.h>

#include <optional>

#include "scan.h"

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Rates = torch::headeronly::HeaderOnlyTensorAccessor<const float, 1>;

#define CHECK_SHAPE(x, ...)                                                 \
  STD_TORCH_CHECK(                                                          \
      x.sizes() == torch::headeronly::IntHeaderOnlyArrayRef({__VA_ARGS__}), \
      #x " has a wrong shape")

Tensor scan(const Tensor& x, const std::optional<Tensor>& decay) {
  STD_TORCH_CHECK(x.dim() == 2 && x.stride(1) == 1, "x must have rows");
  if (decay.has_value()) CHECK_SHAPE(decay.value(), x.size(0));
  Tensor y = torch::stable::new_empty(x, {x.size(0), x.size(1)});
  THO_DISPATCH_V2(
      x.scalar_type(), "scan", AT_WRAP([&] {
        for (int64_t row = 0; row < x.size(0); ++row) {
          const float rate = decay.has_value() ? Rates(decay->const_data_ptr<float>(),
                                                       decay->sizes().data(),
                                                       decay->strides().data())[row]
                                               : 1;
          scan_row(x.const_data_ptr<scalar_t>() + row * x.stride(0),
                   y.mutable_data_ptr<scalar_t>() + row * y.stride(0), x.size(1), rate);
        }
      }),
      AT_FLOATING_TYPES, ScalarType::Half, ScalarType::BFloat16);
  return y;
}

STABLE_TORCH_LIBRARY(migrated, m) {
  m.def("scan(Tensor x, Tensor? decay=None) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(migrated, CPU, m) { m.impl("scan", TORCH_BOX(&scan)); }

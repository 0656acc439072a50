// Stage 2: ATen and TORCH_LIBRARY. The function is the same.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "scan.h"

#define CHECK_SHAPE(x, ...) \
  TORCH_CHECK(x.sizes() == at::IntArrayRef({__VA_ARGS__}), #x " has a wrong shape")

at::Tensor scan(const at::Tensor& x, const std::optional<at::Tensor>& decay) {
  TORCH_CHECK(x.dim() == 2 && x.stride(-1) == 1, "x must have rows");
  if (decay.has_value()) CHECK_SHAPE(decay.value(), x.size(0));
  at::Tensor y = at::empty({x.size(0), x.size(1)}, x.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, x.scalar_type(), "scan", [&] {
        for (int64_t row = 0; row < x.size(0); ++row) {
          const float rate = decay.has_value() ? decay->accessor<float, 1>()[row] : 1;
          scan_row(x.data_ptr<scalar_t>() + row * x.stride(0),
                   y.data_ptr<scalar_t>() + row * y.stride(0), x.size(1), rate);
        }
      });
  return y;
}

TORCH_LIBRARY(migrated, m) { m.def("scan(Tensor x, Tensor? decay=None) -> Tensor"); }

TORCH_LIBRARY_IMPL(migrated, CPU, m) { m.impl("scan", &scan); }

// An extension of 2019, in names that PyTorch has dropped since.
#include <ATen/ATen.h>
#include <THC/THC.h>

at::Tensor scale(const at::Tensor& x, double factor) {
  AT_CHECK(!x.type().is_cuda(), "x must be on the CPU");
  at::Tensor y = at::empty(x.sizes(), x.type());
  AT_DISPATCH_FLOATING_TYPES(x.type(), "scale", [&] {
    for (int64_t i = 0; i < x.numel(); ++i)
      y.data<scalar_t>()[i] = factor * x.data<scalar_t>()[i];
  });
  return y;
}

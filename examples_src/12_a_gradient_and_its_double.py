"""Give an operator a gradient, and the gradient a gradient
========================================================

Register a gradient that a kernel of your own computes. Such a gradient is an operator
like any other: autograd cannot see into it, so a second derivative needs a gradient of
the gradient. Gradient penalties, Hessian-vector products and Newton's method need it.
:doc:`/guide/5_autograd` registers the gradient of the guide's operator.

It needs torch, ninja and a C++ compiler, and uses a GPU if nvcc or hipcc is there too.

.. topics:: 13 14 33 60 62 63 79
"""

import os
import shutil
import sys
import sysconfig
import tempfile
import warnings

import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.utils import cpp_extension

os.environ["PATH"] += os.pathsep + sysconfig.get_path("scripts")  # pip's ninja
for tool in ("ninja", cpp_extension.get_cxx_compiler().split()[-1]):
    if shutil.which(tool) is None:
        print(f"skipped: needs {tool}")
        sys.exit(77)

# %%
# The operator is ``softsign``, :math:`x / (1 + |x|)`, whose derivative is
# :math:`1 / (1 + |x|)^2`. The second operator multiplies this derivative by the
# gradient that arrives. ``Forward`` and ``Backward`` compute one element each, in a
# loop of the CPU or in a thread of the GPU.

SOURCE = r"""
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/Dispatch_v2.h>

#include <cmath>

using torch::stable::Tensor;

#if defined(USE_CUDA)
#define DEVICE CUDA
#define HOST_DEVICE __host__ __device__
template <typename Element>
__global__ void kernel(Element compute, int64_t count) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < count) compute(i);
}

template <typename Element>
void for_each(const Tensor& tensor, Element compute) {
  const int64_t count = tensor.numel(), blocks = (count + 255) / 256;
  const torch::stable::accelerator::DeviceGuard guard(tensor.get_device_index());
  void* stream;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  if (count > 0) kernel<<<blocks, 256, 0, (cudaStream_t)stream>>>(compute, count);
  STD_TORCH_CHECK(cudaGetLastError() == cudaSuccess, "softsign: the launch failed");
}
#else
#define DEVICE CPU
#define HOST_DEVICE
template <typename Element>
void for_each(const Tensor& tensor, Element compute) {
  torch::stable::parallel_for(0, tensor.numel(), 4096, [=](int64_t i, int64_t end) {
    for (; i < end; ++i) compute(i);
  });
}
#endif

template <typename T>
struct Forward {
  const T* x;
  T* output;
  HOST_DEVICE void operator()(int64_t i) const {
    output[i] = x[i] / (1 + std::abs(x[i]));
  }
};

template <typename T>
struct Backward {
  const T *grad, *x;
  T* output;
  HOST_DEVICE void operator()(int64_t i) const {
    const T divisor = 1 + std::abs(x[i]);
    output[i] = grad[i] / (divisor * divisor);
  }
};

Tensor softsign(const Tensor& input) {
  const Tensor x = torch::stable::contiguous(input);
  const Tensor output = torch::stable::empty_like(x);
  THO_DISPATCH_V2(x.scalar_type(), "softsign", AT_WRAP([&] {
    using T = scalar_t;
    for_each(output, Forward<T>{(T*)x.data_ptr(), (T*)output.data_ptr()});
  }), AT_FLOATING_TYPES);
  return output;
}

Tensor softsign_backward(const Tensor& grad, const Tensor& input) {
  const bool alike = grad.sizes().equals(input.sizes()) &&
                     grad.scalar_type() == input.scalar_type() &&
                     grad.device() == input.device();
  STD_TORCH_CHECK(alike, "softsign_backward: grad and input differ in shape, dtype or "
                  "device");
  const Tensor g = torch::stable::contiguous(grad);
  const Tensor x = torch::stable::contiguous(input);
  const Tensor output = torch::stable::empty_like(x);
  THO_DISPATCH_V2(x.scalar_type(), "softsign_backward", AT_WRAP([&] {
    using T = scalar_t;
    for_each(output,
             Backward<T>{(T*)g.data_ptr(), (T*)x.data_ptr(), (T*)output.data_ptr()});
  }), AT_FLOATING_TYPES);
  return output;
}

STABLE_TORCH_LIBRARY(twice, m) {
  m.def("softsign(Tensor input) -> Tensor");
  m.def("softsign_backward(Tensor grad, Tensor input) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(twice, DEVICE, m) {
  m.impl("softsign", TORCH_BOX(&softsign));
  m.impl("softsign_backward", TORCH_BOX(&softsign_backward));
}
"""

gpu = torch.cuda.is_available() and (cpp_extension.CUDA_HOME or cpp_extension.ROCM_HOME)
device = "cuda" if gpu else "cpu"
with tempfile.TemporaryDirectory() as folder:
    cpp_extension.load_inline(
        "twice",
        cpp_sources="" if gpu else SOURCE,
        cuda_sources=SOURCE if gpu else "",
        extra_cflags=["-O3"],
        extra_cuda_cflags=["-O3", "-DUSE_CUDA"],
        # A libstdc++ that is linked in would catch no exception of PyTorch's own.
        extra_ldflags=["-Wl,--exclude-libs,ALL"] * (sys.platform == "linux"),
        build_directory=folder,
        is_python_module=False,
        no_implicit_headers=True,
    )
softsign = torch.ops.twice.softsign
softsign_backward = torch.ops.twice.softsign_backward

# %%
# **The gradient.** ``setup_context`` saves what the gradient needs: here the input,
# which is there already and is not copied.


def save_input(ctx, inputs, output):
    """Keep the last argument, the input of both operators."""
    ctx.save_for_backward(*inputs)


def gradient(ctx, grad):
    """Call the operator that computes the gradient."""
    return softsign_backward(grad, *ctx.saved_tensors)


torch.library.register_autograd("twice::softsign", gradient, setup_context=save_input)
x = torch.randn(3, 5, dtype=torch.float64, device=device, requires_grad=True)
print("gradcheck:", gradcheck(softsign, x))

# %%
# **Without its double**, the gradient is right, but its own derivative is missing. A
# warning says so, and ``gradgradcheck`` notices. A sum with other terms would have a
# wrong second derivative, without an error.

with warnings.catch_warnings(record=True) as caught:
    (first,) = torch.autograd.grad(softsign(x).sum(), x, create_graph=True)
    print("derivative:", *torch.autograd.grad(first.sum(), x, allow_unused=True))
    try:
        gradgradcheck(softsign, x)
    except RuntimeError as error:
        print("gradgradcheck:", str(error).split(",")[0])
print("warning:", str(caught[0].message).partition(". ")[0])

# %%
# **The double.** With :math:`s(x) = 1 / (1 + |x|)^2`, the gradient is
# :math:`grad \cdot s(x)`. It is linear in ``grad``, so towards ``grad`` its derivative
# is the same operator once more. Towards the input it is :math:`grad \cdot s'(x)`, with
# :math:`s'(x) = -2\,\mathrm{sign}(x) / (1 + |x|)^3`. This part is rarely used, so it is
# made of PyTorch's operators, which have derivatives of every order.


def double(ctx, second):
    """Return the gradients of the gradient's two arguments."""
    grad, x = ctx.saved_tensors
    slope = -2 * x.sign() / (1 + x.abs()) ** 3
    return softsign_backward(second, x), second * grad * slope


torch.library.register_autograd(
    "twice::softsign_backward", double, setup_context=save_input
)
print("gradgradcheck:", gradgradcheck(softsign, x))

# %%
# A Hessian-vector product agrees with that of PyTorch's own ``softsign``, and so does a
# third derivative.


def derivatives(function: torch.nn.Module, order: int) -> list[torch.Tensor]:
    """Return the derivatives of the sum of a function, up to an order."""
    found = [function(x)]
    for _ in range(order):
        found += torch.autograd.grad(found[-1].sum(), x, create_graph=True)
    return found


ours = derivatives(softsign, 3)
eager = derivatives(torch.nn.functional.softsign, 3)
for order, pair in enumerate(zip(ours, eager, strict=True)):
    torch.testing.assert_close(*pair)
    print(
        f"derivative {order}: largest difference {(pair[0] - pair[1]).abs().max():.0e}"
    )

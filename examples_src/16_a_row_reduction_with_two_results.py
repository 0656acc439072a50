"""Reduce rows to two results
==========================

Write an operator that reads each row of a tensor once and returns two results: the mean
and the variance. On the GPU, a block of threads reduces a row. The operator has a
gradient with a term for each result. :doc:`/reduction/index` builds a faster reduction
step by step, and :doc:`/howto/return_several_outputs` has other kinds of results.

It needs torch, ninja and a C++ compiler, and uses a GPU if nvcc or hipcc is there too.

.. topics:: 7 13 14 23 33 58 60 62 78 79
"""

import os
import shutil
import sys
import sysconfig
import tempfile

import torch
from torch.utils import cpp_extension

os.environ["PATH"] += os.pathsep + sysconfig.get_path("scripts")  # pip's ninja
for tool in ("ninja", cpp_extension.get_cxx_compiler().split()[-1]):
    if shutil.which(tool) is None:
        print(f"skipped: needs {tool}")
        sys.exit(77)

# %%
# The variance is the mean of the squared distances from the mean. The usual short cut,
# the mean of the squares less the square of the mean, subtracts two large numbers where
# the mean is large, and may return anything. The kernel therefore shifts all values by
# the first of their row before it adds up them and their squares.
#
# In the GPU kernel, each thread adds up every 256th element. The threads then add their
# sums up in *shared memory*: half of them at first, then a quarter, until one is left.
# This tree does not depend on the width of a warp, so it is right on every GPU.

SOURCE = r"""
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/Dispatch_v2.h>

#include <tuple>
#include <vector>

using torch::stable::Tensor;

#if defined(USE_CUDA)
#define DEVICE CUDA
#define HOST_DEVICE __host__ __device__
#else
#define DEVICE CPU
#define HOST_DEVICE
#endif

template <typename T>
struct Sums {
  T values = 0, squares = 0;

  HOST_DEVICE void add(T value) {
    values += value;
    squares += value * value;
  }
  HOST_DEVICE void write(T shift, int64_t count, T* mean, T* variance) const {
    const T moved = values / count;
    *mean = shift + moved;
    *variance = squares / count - moved * moved;
  }
};

#if defined(USE_CUDA)
constexpr int kThreads = 256;

template <typename T>
__global__ void kernel(const T* input, T* mean, T* variance, int64_t columns) {
  __shared__ T values[kThreads], squares[kThreads];
  const T* row = input + blockIdx.x * columns;
  Sums<T> own;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) own.add(row[i] - row[0]);
  values[threadIdx.x] = own.values;
  squares[threadIdx.x] = own.squares;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      values[threadIdx.x] += values[threadIdx.x + half];
      squares[threadIdx.x] += squares[threadIdx.x + half];
    }
  }
  if (threadIdx.x > 0) return;
  Sums<T>{values[0], squares[0]}.write(row[0], columns, mean + blockIdx.x,
                                       variance + blockIdx.x);
}

template <typename T>
void run(const Tensor& tensor, const T* input, T* mean, T* variance, int64_t rows,
         int64_t columns) {
  const torch::stable::accelerator::DeviceGuard guard(tensor.get_device_index());
  void* stream;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  if (rows == 0) return;
  kernel<<<rows, kThreads, 0, (cudaStream_t)stream>>>(input, mean, variance, columns);
  STD_TORCH_CHECK(cudaGetLastError() == cudaSuccess, "mean_var: the launch failed");
}
#else
template <typename T>
void run(const Tensor&, const T* input, T* mean, T* variance, int64_t rows,
         int64_t columns) {
  torch::stable::parallel_for(0, rows, 16, [=](int64_t row, int64_t end) {
    for (; row < end; ++row) {
      const T* data = input + row * columns;
      Sums<T> sums;
      for (int64_t i = 0; i < columns; ++i) sums.add(data[i] - data[0]);
      sums.write(data[0], columns, mean + row, variance + row);
    }
  });
}
#endif

std::tuple<Tensor, Tensor> mean_var(const Tensor& input) {
  STD_TORCH_CHECK(input.dim() > 0 && input.size(-1) > 0,
                  "mean_var: expected rows with at least one element");
  const Tensor x = torch::stable::contiguous(input);
  const int64_t columns = x.size(-1), rows = x.numel() / columns;
  const std::vector<int64_t> shape(x.sizes().begin(), x.sizes().end() - 1);
  const Tensor mean = torch::stable::new_empty(x, shape);
  const Tensor variance = torch::stable::new_empty(x, shape);
  THO_DISPATCH_V2(x.scalar_type(), "mean_var", AT_WRAP([&] {
    using T = scalar_t;
    run(x, (T*)x.data_ptr(), (T*)mean.data_ptr(), (T*)variance.data_ptr(), rows,
        columns);
  }), AT_FLOATING_TYPES);
  return {mean, variance};
}

STABLE_TORCH_LIBRARY(rows, m) {
  m.def("mean_var(Tensor input) -> (Tensor mean, Tensor variance)");
}

STABLE_TORCH_LIBRARY_IMPL(rows, DEVICE, m) { m.impl("mean_var", TORCH_BOX(&mean_var)); }
"""

gpu = torch.cuda.is_available() and (cpp_extension.CUDA_HOME or cpp_extension.ROCM_HOME)
device = "cuda" if gpu else "cpu"
with tempfile.TemporaryDirectory() as folder:
    cpp_extension.load_inline(
        "rows",
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
mean_var = torch.ops.rows.mean_var
print(mean_var.default._schema)

# %%
# Both results agree with eager PyTorch's in fp64, also for rows whose mean is large:

for rows, columns, shift in ((1000, 777, 0), (3, 1, 0), (4, 300, 1e4)):
    input = torch.randn(rows, columns, device=device) + shift
    exact = torch.var_mean(input.double(), dim=-1, correction=0)
    variance, mean = (result.float() for result in exact)
    torch.testing.assert_close(mean_var(input), (mean, variance), rtol=1e-4, atol=1e-5)
    short_cut = (input**2).mean(-1) - input.mean(-1) ** 2
    error = (short_cut - variance).abs().amax()
    print(f"{rows:5} x {columns:3} + {shift:<7}  the short cut is off by {error:.1g}")
empty = [result.shape for result in mean_var(torch.empty(0, 5, device=device))]
print("without rows:", *empty)

# %%
# The fake kernel returns two tensors, too. The gradient function gets a gradient for
# each result, which is zero for a result that is not used. With :math:`n` elements in a
# row, the gradient of the input is :math:`(g_{mean} + 2 (x - mean) g_{variance}) / n`.


@torch.library.register_fake("rows::mean_var")
def _(input):
    return input.new_empty(input.shape[:-1]), input.new_empty(input.shape[:-1])


def gradient(ctx, grad_mean, grad_variance):
    """Return the gradient of the input, of the gradients of both results."""
    input, mean = ctx.saved_tensors
    from_variance = 2 * (input - mean[..., None]) * grad_variance[..., None]
    return (grad_mean[..., None] + from_variance) / input.shape[-1]


def save(ctx, inputs, output):
    """Keep the input, and the mean, which was computed already."""
    ctx.save_for_backward(*inputs, output[0])


torch.library.register_autograd("rows::mean_var", gradient, setup_context=save)

# %%
# ``gradcheck`` tests both results, together and one by one, and ``opcheck`` the
# registration.

x = torch.randn(2, 3, 5, dtype=torch.float64, device=device, requires_grad=True)
print("both:", torch.autograd.gradcheck(mean_var, x))
for number, name in enumerate(("mean", "variance")):
    print(f"{name}:", torch.autograd.gradcheck(lambda x, n=number: mean_var(x)[n], x))
print(torch.library.opcheck(mean_var, (x,)))

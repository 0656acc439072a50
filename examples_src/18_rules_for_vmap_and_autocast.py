"""Write rules for vmap and autocast
=================================

Call an operator under ``torch.vmap`` and under autocast, first without a rule and then
with one. Without a rule, ``vmap`` calls the kernel once for each sample, and autocast
hands the kernel a dtype that it does not have.
:doc:`/howto/work_with_vmap_and_autocast` adds forward-mode derivatives and the mistakes
that a rule can make.

It needs torch, ninja and a C++ compiler, and uses a GPU if nvcc or hipcc is there too.

.. topics:: 4 13 14 33 64 66
"""

import itertools
import os
import shutil
import sys
import sysconfig
import tempfile

import torch
from torch.utils import cpp_extension
from torch.utils._python_dispatch import TorchDispatchMode

os.environ["PATH"] += os.pathsep + sysconfig.get_path("scripts")  # pip's ninja
for tool in ("ninja", cpp_extension.get_cxx_compiler().split()[-1]):
    if shutil.which(tool) is None:
        print(f"skipped: needs {tool}")
        sys.exit(77)

# %%
# The operator computes ``relu(x) * weight``, with a weight for each column of ``x``.
# The kernel takes tensors in fp32 only, and a weight of one dimension only. The two
# rules below have to respect these limits.

SOURCE = r"""
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;

#if defined(USE_CUDA)
#define DEVICE CUDA
__global__ void kernel(const float* x, const float* weight, float* result,
                       int64_t count, int64_t columns) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < count) result[i] = (x[i] < 0 ? 0 : x[i]) * weight[i % columns];
}

void run(const Tensor& tensor, const float* x, const float* weight, float* result,
         int64_t columns) {
  const int64_t count = tensor.numel(), blocks = (count + 255) / 256;
  const torch::stable::accelerator::DeviceGuard guard(tensor.get_device_index());
  void* stream;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  if (count == 0) return;
  kernel<<<blocks, 256, 0, (cudaStream_t)stream>>>(x, weight, result, count, columns);
  STD_TORCH_CHECK(cudaGetLastError() == cudaSuccess, "relu_scale: the launch failed");
}
#else
#define DEVICE CPU
void run(const Tensor& tensor, const float* x, const float* weight, float* result,
         int64_t columns) {
  torch::stable::parallel_for(0, tensor.numel(), 4096, [=](int64_t i, int64_t end) {
    for (; i < end; ++i) result[i] = (x[i] < 0 ? 0 : x[i]) * weight[i % columns];
  });
}
#endif

Tensor relu_scale(const Tensor& x, const Tensor& weight) {
  STD_TORCH_CHECK(x.scalar_type() == torch::headeronly::ScalarType::Float &&
                      weight.scalar_type() == x.scalar_type() &&
                      weight.device() == x.device(),
                  "relu_scale: expected two fp32 tensors on one device");
  STD_TORCH_CHECK(x.dim() > 0 && weight.dim() == 1 && weight.size(0) == x.size(-1),
                  "relu_scale: expected a weight for each column of x");
  const Tensor input = torch::stable::contiguous(x);
  const Tensor factors = torch::stable::contiguous(weight);
  Tensor result = torch::stable::empty_like(input);
  run(input, static_cast<const float*>(input.const_data_ptr()),
      static_cast<const float*>(factors.const_data_ptr()),
      static_cast<float*>(result.mutable_data_ptr()), weight.size(0));
  return result;
}

STABLE_TORCH_LIBRARY(ruled, m) {
  m.def("relu_scale(Tensor x, Tensor weight) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(ruled, DEVICE, m) {
  m.impl("relu_scale", TORCH_BOX(&relu_scale));
}
"""

gpu = torch.cuda.is_available() and (cpp_extension.CUDA_HOME or cpp_extension.ROCM_HOME)
device = "cuda" if gpu else "cpu"
with tempfile.TemporaryDirectory() as folder:
    cpp_extension.load_inline(
        "ruled",
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

relu_scale = torch.ops.ruled.relu_scale

# %%
# ``torch.vmap`` applies a function to each sample of a batch. If an operator has no
# batching rule, ``vmap`` calls the kernel once for each of them. A dispatch mode counts
# the calls:


class Calls(TorchDispatchMode):
    """Count the calls that reach the kernel."""

    count = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.count += op is relu_scale.default
        return op(*args, **(kwargs or {}))


torch._C._functorch._set_vmap_fallback_warning_enabled(False)
x, weight = torch.randn(8, 5, 300, device=device), torch.randn(300, device=device)
expected = torch.relu(x) * weight
with Calls() as calls:
    batched = torch.vmap(relu_scale, (0, None))(x, weight)
torch.testing.assert_close(batched, expected)
print("calls without a rule:", calls.count)

# %%
# A batching rule gets the tensors of the whole batch. For each argument, ``in_dims``
# says which dimension is the batch, or ``None`` if all samples share the argument. The
# rule returns the result, and the dimension of the batch in the result. A batched
# weight has two dimensions, which the kernel refuses. The rule then gives the kernel a
# weight of ones, and multiplies by the batched weight itself.


@torch.library.register_vmap("ruled::relu_scale")
def whole_batch(info, in_dims, x, weight):
    """Call the kernel once for all samples."""
    x_dim, weight_dim = in_dims
    x = x.expand(info.batch_size, *x.shape) if x_dim is None else x.movedim(x_dim, 0)
    if weight_dim is None:
        return relu_scale(x, weight), 0
    weight = weight.movedim(weight_dim, 0)
    if weight.dim() != 2 or weight.size(1) != x.size(-1):
        raise ValueError("relu_scale: expected a weight for each column of x")
    weight = weight.view(len(weight), *[1] * (x.dim() - 2), x.size(-1))
    return relu_scale(x, x.new_ones(x.size(-1))) * weight, 0


with Calls() as calls:
    batched = torch.vmap(relu_scale, (0, None))(x, weight)
torch.testing.assert_close(batched, expected)
print("calls with a rule:", calls.count)

# %%
# ``opcheck`` does not test a batching rule. Compare the rule with a loop, for every
# place that the batch can have in each argument:

samples, weights = torch.randn(4, 5, 6, device=device), torch.randn(4, 6, device=device)
compared = 0
for x_dim, weight_dim in itertools.product((None, 0, 1, -1), (None, 0, -1)):
    if x_dim is weight_dim is None:
        continue
    xs = samples[0] if x_dim is None else samples.movedim(0, x_dim)
    factors = weights[0] if weight_dim is None else weights.movedim(0, weight_dim)
    loop = [
        relu_scale(
            samples[0 if x_dim is None else i], weights[0 if weight_dim is None else i]
        )
        for i in range(4)
    ]
    batched = torch.vmap(relu_scale, (x_dim, weight_dim))(xs, factors)
    torch.testing.assert_close(batched, torch.stack(loop))
    compared += 1
print("batch dimensions compared with a loop:", compared)

# %%
# Under autocast, a linear layer returns bfloat16. Autocast does not know this operator
# and leaves its arguments as they are, so the kernel refuses the layer's result:

layer = torch.nn.Linear(300, 300, device=device)


def model(x):
    """Apply a layer, and the operator to what it returns."""
    with torch.autocast(device, torch.bfloat16):
        return relu_scale(layer(x), weight)


try:
    model(x)
except RuntimeError as error:
    print(str(error).splitlines()[0].partition("relu_scale: ")[2])

# %%
# An autocast rule names the dtype that the kernel wants, for one type of device.
# PyTorch casts the arguments to this dtype, and switches autocast off for the call:

torch.library.register_autocast("ruled::relu_scale", device, torch.float32)
result = model(x)
with torch.autocast(device, torch.bfloat16):
    lowered = layer(x)
torch.testing.assert_close(result, torch.relu(lowered.float()) * weight)
print("the layer returns", lowered.dtype, "and the operator", result.dtype)

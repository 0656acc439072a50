"""Add an operator: from the interface to the gradient
===================================================

Add ``reglu(gate, up)``, which is ``relu(gate) * up``, to PyTorch in one file. :doc:`The
guide </guide/index>` takes the same steps one by one, and makes a package of them.

It needs torch, ninja and a C++ compiler, and uses a GPU if nvcc or hipcc is there too.

.. topics:: 2 4 13 14 16 17 33 44 58 60 68 78 79 86
"""

import os
import shutil
import sys
import sysconfig
import tempfile

import torch
from torch.utils import cpp_extension
from torch.utils.benchmark import Timer

os.environ["PATH"] += os.pathsep + sysconfig.get_path("scripts")  # pip's ninja
for tool in ("ninja", cpp_extension.get_cxx_compiler().split()[-1]):
    if shutil.which(tool) is None:
        print(f"skipped: needs {tool}")
        sys.exit(77)

# %%
# **The interface** is what users call. It has the documentation and the checks.


def reglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return ``relu(gate) * up``, for two fp32 or fp64 tensors of one shape."""
    if gate.shape != up.shape:
        raise ValueError(f"reglu: gate is {[*gate.shape]}, but up is {[*up.shape]}")
    return torch.ops.one_file.reglu(gate, up)


# %%
# **The kernel** computes an element, in a loop of the CPU's threads or in a GPU thread.
# **The registration** gives PyTorch the schema and a function, which checks again what
# memory accesses rely on: ``torch.ops`` can be called without the interface.

SOURCE = r"""
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/Dispatch_v2.h>

using torch::stable::Tensor;
#if defined(USE_CUDA)
#define DEVICE CUDA
template <typename T>
__global__ void kernel(const T* gate, const T* up, T* out, int64_t count) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < count) out[i] = (gate[i] < 0 ? 0 : gate[i]) * up[i];
}
template <typename T>
void run(const Tensor& tensor, const T* gate, const T* up, T* out) {
  const int64_t count = tensor.numel(), blocks = (count + 255) / 256;
  const torch::stable::accelerator::DeviceGuard guard(tensor.get_device_index());
  void* stream;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  if (count > 0) kernel<<<blocks, 256, 0, (cudaStream_t)stream>>>(gate, up, out, count);
  STD_TORCH_CHECK(cudaGetLastError() == cudaSuccess, "reglu: the launch failed");
}
#else
#define DEVICE CPU
template <typename T>
void run(const Tensor& tensor, const T* gate, const T* up, T* out) {
  torch::stable::parallel_for(0, tensor.numel(), 4096, [=](int64_t i, int64_t end) {
    for (; i < end; ++i) out[i] = (gate[i] < 0 ? 0 : gate[i]) * up[i];
  });
}
#endif
Tensor reglu(const Tensor& gate, const Tensor& up) {
  STD_TORCH_CHECK(gate.sizes().equals(up.sizes()) && gate.device() == up.device() &&
                  gate.scalar_type() == up.scalar_type(), "reglu: up is unlike gate");
  const Tensor g = torch::stable::contiguous(gate), u = torch::stable::contiguous(up);
  const Tensor output = torch::stable::empty_like(g);
  THO_DISPATCH_V2(gate.scalar_type(), "reglu", AT_WRAP([&] {
    using T = scalar_t;  // float or double
    run(output, (T*)g.data_ptr(), (T*)u.data_ptr(), (T*)output.data_ptr());
  }), AT_FLOATING_TYPES);
  return output;
}

STABLE_TORCH_LIBRARY(one_file, m) { m.def("reglu(Tensor gate, Tensor up) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(one_file, DEVICE, m) { m.impl("reglu", TORCH_BOX(&reglu)); }
"""

# %%
# **The build.** PyTorch compiles the source, links the library and loads it. An AMD GPU
# is ``cuda`` to PyTorch, too, which replaces CUDA's names by HIP's before it compiles.

gpu = torch.cuda.is_available() and (cpp_extension.CUDA_HOME or cpp_extension.ROCM_HOME)
device = "cuda" if gpu else "cpu"
with tempfile.TemporaryDirectory() as folder:
    cpp_extension.load_inline(
        "one_file",
        cpp_sources="" if gpu else SOURCE,
        cuda_sources=SOURCE if gpu else "",
        extra_cflags=["-O3"],
        extra_cuda_cflags=["-O3", "-DUSE_CUDA"],
        extra_ldflags=["-Wl,--exclude-libs,ALL"] * (sys.platform == "linux"),
        build_directory=folder,
        is_python_module=False,
        no_implicit_headers=True,  # they would take half a minute to compile
    )
print(torch.ops.one_file.reglu.default._schema, "on", device)

# %%
# **The fake kernel** describes the result. **The gradient** is the chain rule.


@torch.library.register_fake("one_file::reglu")
def _(gate, up):
    return torch.empty_like(gate, memory_format=torch.contiguous_format)


def backward(ctx, grad):
    """Return the gradients of gate and up."""
    gate, up = ctx.saved_tensors
    return grad * up * (gate > 0), grad * gate.relu()


torch.library.register_autograd(
    "one_file::reglu",
    backward,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)

# %%
# **The tests** compare with eager PyTorch. ``opcheck`` tests the registration,
# ``gradcheck`` the gradient, and ``fullgraph=True`` that nothing is left out.

gate, up = torch.randn(2, 512, 4096, device=device)
for call in (reglu, torch.compile(reglu, fullgraph=True)):
    torch.testing.assert_close(call(gate, up), gate.relu() * up)
small = torch.randn(2, 3, 5, device=device, dtype=torch.float64, requires_grad=True)
print(torch.library.opcheck(torch.ops.one_file.reglu, tuple(small)))
print("gradcheck:", torch.autograd.gradcheck(reglu, tuple(small)))

# %%
# **The timing.** Eager PyTorch also writes the result of ``relu``, and reads it again.

for call in ("reglu(gate, up)", "gate.relu() * up"):
    timer = Timer(call, globals={"reglu": reglu, "gate": gate, "up": up})
    print(f"{call:16} {timer.blocked_autorange(min_run_time=0.2).median * 1e6:7.0f} µs")

"""Update a tensor in place
========================

Write an operator that updates a buffer: it keeps a moving average, and writes the new
average over the old one. The schema has to say so, and the operator has to refuse what
cannot be written to. :doc:`/howto/mutate_an_input` adds what an in-place operator needs
that takes part in training.

It needs torch, ninja and a C++ compiler, and uses a GPU if nvcc or hipcc is there too.

.. topics:: 4 6 8 11 13 14 33 68 78
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
# ``Tensor(a!)`` in the schema declares the write. Without it, ``torch.compile`` may
# remove the call or move it past a read. The operator returns nothing.
#
# A kernel that only reads can work on a contiguous copy of its input. A kernel that
# writes cannot: the caller would not see what is written to a copy. The average must
# therefore be contiguous itself. That also refuses an expanded tensor, in which several
# elements share one place. The values may be the average itself, but must not overlap
# it otherwise: a thread would read what another has written.

SOURCE = r"""
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;

#if defined(USE_CUDA)
#define DEVICE CUDA
__global__ void kernel(float* average, const float* value, float rate, int64_t count) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < count) average[i] += rate * (value[i] - average[i]);
}

void run(const Tensor& tensor, float* average, const float* value, float rate) {
  const int64_t count = tensor.numel(), blocks = (count + 255) / 256;
  const torch::stable::accelerator::DeviceGuard guard(tensor.get_device_index());
  void* stream;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  if (count == 0) return;
  kernel<<<blocks, 256, 0, (cudaStream_t)stream>>>(average, value, rate, count);
  STD_TORCH_CHECK(cudaGetLastError() == cudaSuccess, "update_: the launch failed");
}
#else
#define DEVICE CPU
void run(const Tensor& tensor, float* average, const float* value, float rate) {
  torch::stable::parallel_for(0, tensor.numel(), 4096, [=](int64_t i, int64_t end) {
    for (; i < end; ++i) average[i] += rate * (value[i] - average[i]);
  });
}
#endif

void update_(Tensor average, const Tensor& value, double rate) {
  STD_TORCH_CHECK(
      average.scalar_type() == torch::headeronly::ScalarType::Float &&
          value.scalar_type() == average.scalar_type() &&
          value.device() == average.device() && value.sizes().equals(average.sizes()),
      "update_: expected two fp32 tensors of one shape, on one device");
  STD_TORCH_CHECK(average.is_contiguous(),
                  "update_: expected a contiguous average, which can be written to");
  const Tensor from = torch::stable::contiguous(value);
  auto* to = static_cast<float*>(average.mutable_data_ptr());
  const auto* data = static_cast<const float*>(from.const_data_ptr());
  const int64_t count = average.numel();
  STD_TORCH_CHECK(to == data || to + count <= data || data + count <= to,
                  "update_: value overlaps the average; clone() it first");
  run(average, to, data, static_cast<float>(rate));
}

STABLE_TORCH_LIBRARY(in_place, m) {
  m.def("update_(Tensor(a!) average, Tensor value, float rate) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(in_place, DEVICE, m) {
  m.impl("update_", TORCH_BOX(&update_));
}
"""

gpu = torch.cuda.is_available() and (cpp_extension.CUDA_HOME or cpp_extension.ROCM_HOME)
device = "cuda" if gpu else "cpu"
with tempfile.TemporaryDirectory() as folder:
    cpp_extension.load_inline(
        "in_place",
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

# %%
# A kernel in C++ writes through a pointer, and autograd does not notice. So each call
# increments the version of the average: if backward needs the old value, it raises. A
# kernel in the row ``ADInplaceOrView`` does this for callers of the operator and of
# compiled code too, and then calls the rows below it. The row is also the place to
# refuse an average that requires a gradient, which would be silently wrong.

library = torch.library.Library("in_place", "IMPL")


def count_the_version(keys, average, value, rate):
    """Update the average, and tell autograd that it has changed."""
    needs_gradient = average.requires_grad or value.requires_grad
    if needs_gradient and torch.is_grad_enabled():
        raise RuntimeError("in_place::update_: has no gradient; detach() its arguments")
    with torch._C._AutoDispatchBelowADInplaceOrView():
        keys &= torch._C._after_ADInplaceOrView_keyset
        torch.ops.in_place.update_.default.redispatch(keys, average, value, rate)
    torch.autograd.graph.increment_version(average)


library.impl("update_", count_the_version, "ADInplaceOrView", with_keyset=True)
update_ = torch.ops.in_place.update_
print(update_.default._schema)

# %%
# The update agrees with eager PyTorch's ``lerp_``, and is written to the tensor itself:

average, value = torch.randn(2, 300, 7, device=device)
expected, address = torch.lerp(average, value, 0.25), average.data_ptr()
before = average._version
update_(average, value, 0.25)
torch.testing.assert_close(average, expected)
print("same memory:", average.data_ptr() == address)
print("version:", before, "->", average._version)

# %%
# Backward notices that a value it has saved was overwritten:

leaf = torch.ones(300, 7, device=device, requires_grad=True)
product = leaf * average
update_(average, value, 0.25)
try:
    product.sum().backward()
except RuntimeError as error:
    print(str(error).partition(": [")[0])

# %%
# What cannot be written to is refused before anything is written:

line = torch.zeros(8, device=device)
refused = {
    "expanded": (line[:1].expand(8), line),
    "strided": (line[::2], line[:4]),
    "overlapping": (line[1:], line[:-1]),
    "requires grad": (line, torch.ones(8, device=device, requires_grad=True)),
}
for name, (target, values) in refused.items():
    try:
        update_(target, values, 0.5)
    except RuntimeError as error:
        print(f"{name:14} {str(error).splitlines()[0].partition('update_: ')[2]}")
print("unchanged:", line.eq(0).all().item())

# %%
# PyTorch makes the fake kernel of an operator that writes to an argument and returns
# nothing. ``opcheck`` compares the schema with what the operator does. Compiled code
# updates in place, too, and keeps the number and the order of the calls.

print(torch.library.opcheck(update_, (average, value, 0.25)))


@torch.compile(fullgraph=True)
def update_twice(average, first, second):
    """Update an average with two values."""
    update_(average, first, 0.25)
    update_(average, second, 0.5)


first, second = torch.randn(2, 300, 7, device=device)
expected = average.lerp(first, 0.25).lerp(second, 0.5)
update_twice(average, first, second)
torch.testing.assert_close(average, expected)
print("compiled, version:", average._version)

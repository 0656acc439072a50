"""Register an operator, and look it up in the dispatcher's table
==============================================================

Register an operator in four steps, and look after each at what PyTorch knows of it.
The dispatcher keeps a table for each operator: a :term:`dispatch key` names a row, and
the row has the function that a call runs. An error about a missing kernel is about a
row that you can look up. :doc:`/explain/the_way_of_a_call` follows a call through the
table.

It needs torch, ninja and a C++ compiler, and uses a GPU if there is one.

.. topics:: 11 31 33 39 58
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
# **Define the schema, and a kernel for the CPU.** The C++ library does both when it is
# loaded. ``def`` makes the operator from its schema, and ``impl`` fills a row of its
# table.

SOURCE = r"""
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;

Tensor scale(const Tensor& input, double factor) {
  STD_TORCH_CHECK(input.scalar_type() == torch::headeronly::ScalarType::Float,
                  "scale: expected fp32, but got ", input.scalar_type());
  const Tensor x = torch::stable::contiguous(input);
  const Tensor output = torch::stable::empty_like(x);
  const auto* from = static_cast<const float*>(x.const_data_ptr());
  auto* to = static_cast<float*>(output.mutable_data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] * static_cast<float>(factor);
  return output;
}

STABLE_TORCH_LIBRARY(looked_up, m) {
  m.def("scale(Tensor input, float factor) -> Tensor");
  m.def("scale.tensor(Tensor input, Tensor factor) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(looked_up, CPU, m) { m.impl("scale", TORCH_BOX(&scale)); }
"""

with tempfile.TemporaryDirectory() as folder:
    cpp_extension.load_inline(
        "looked_up",
        SOURCE,
        extra_cflags=["-O2"],
        # A libstdc++ that is linked in would catch no exception of PyTorch's own.
        extra_ldflags=["-Wl,--exclude-libs,ALL"] * (sys.platform == "linux"),
        build_directory=folder,
        is_python_module=False,
        no_implicit_headers=True,
    )

# %%
# ``torch.ops`` finds the operator by its name. The two schemas are two *overloads*, and
# each of them has a table of its own.

scale = torch.ops.looked_up.scale
for overload in scale.overloads():
    print(getattr(scale, overload)._schema)
torch.testing.assert_close(scale(torch.ones(3), 2.0), torch.full((3,), 2.0))

# %%
# An overload says whether a row has a kernel of its own. The private function
# ``_dispatch_dump_table`` returns the whole table, with the place where each kernel was
# registered. It leaves out rows that are empty, and has some that PyTorch filled by
# rules of its own, such as ``AutogradCPU``.

KEYS = ("CPU", "CUDA", "Meta", "AutogradCPU")


def rows(operator: torch._ops.OpOverload) -> None:
    """Print the rows of a table: whether a kernel is there, and where it came from."""
    table = torch._C._dispatch_dump_table(operator.name()).splitlines()
    origins = dict(row.split(": ", 1) for row in table if ": " in row)
    for key in KEYS:
        own = operator.has_kernel_for_dispatch_key(getattr(torch._C.DispatchKey, key))
        origin = origins.get(key, "nothing").split(" [")[0].rpartition("/")[2]
        print(f"  {key:12} {'own kernel' if own else '':11} {origin}")


print("scale")
rows(scale.default)
print("scale.tensor")
rows(scale.tensor)

# %%
# The tensors of a call decide which row runs. The keys of a tensor say where a call
# with it goes first, and where it goes after autograd.

print(torch._C._dispatch_keys(torch.ones(2)))


def attempt(*args) -> None:
    """Call the operator, and print the result or the error's first line."""
    try:
        result = scale(*args)
        print(result.device, tuple(result.shape), result.dtype)
    except Exception as error:
        print(f"{type(error).__name__}: {str(error).splitlines()[0][:150]}")


on_meta = torch.ones(3, device="meta")
attempt(on_meta, 2.0)
attempt(torch.ones(3), torch.tensor(2.0))

# %%
# **Add the fake kernel.** It fills the row ``Meta``, with which ``torch.compile`` and
# ``torch.export`` ask for the shape of a result.


@torch.library.register_fake("looked_up::scale")
def _(input, factor):
    return torch.empty_like(input, memory_format=torch.contiguous_format)


rows(scale.default)
attempt(on_meta, 2.0)

# %%
# **Add a kernel for another device.** A row can be filled from Python, too, and from
# any package that knows the name.


@torch.library.impl("looked_up::scale", "CUDA")
def _(input, factor):
    return input * factor


rows(scale.default)
if torch.cuda.is_available():
    attempt(torch.ones(3, device="cuda"), 2.0)

# %%
# **Compose the other overload** of operators that have kernels. This one function
# serves all devices, and autograd differentiates what it calls.


@torch.library.impl("looked_up::scale.tensor", "CompositeImplicitAutograd")
def _(input, factor):
    return input * factor


rows(scale.tensor)
attempt(torch.ones(3), torch.tensor(2.0))

# %%
# :func:`torch.library.get_kernel` takes the function out of a row: an override calls
# the kernel that it replaces so. It is called with the keys that are left.

kernel = torch.library.get_kernel("looked_up::scale", "CPU")
keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
print(kernel.call_boxed(keys, torch.ones(2), 3.0))

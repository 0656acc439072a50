"""Add a device to PyTorch (bring a backend)
=========================================

Write the fewest functions with which PyTorch works on a device that it does not know.
The device is called ``opbook``, and uses the device type ``PrivateUse1``, which PyTorch
keeps free for devices like this. Its memory is the host's, so that it runs on every
machine. It has one kernel that computes, for ``aten::neg``, and the functions that
make, copy and view tensors. Almost everything else runs on the CPU.

It needs torch, a C++ compiler, and ``examples_src/sources`` of the repository.

.. topics:: 38
"""

import sys
import tempfile
from pathlib import Path

import torch

SOURCES = Path(sys.argv[0]).resolve().parent / "sources" / "bring_a_backend"
if not SOURCES.is_dir():
    print("skipped: needs the folder examples_src/sources of the repository beside it")
    sys.exit(77)
sys.path.insert(0, str(SOURCES))
import opbook_device

if opbook_device.COMPILER is None:
    print("skipped: needs a C++ compiler (install g++)")
    sys.exit(77)
FOLDER = tempfile.TemporaryDirectory(prefix="opbook-")

# %%
# The backend needs PyTorch's C++ interface, so it works only with the version of
# PyTorch that it was compiled with. The kernel needs only the stable ABI, and compiles
# in a fraction of the time.

seconds = opbook_device.build(Path(FOLDER.name))
for name in opbook_device.FILES:
    source = SOURCES / f"{name}.cpp"
    lines = len(source.read_text().splitlines())
    print(f"{source.name:25} {lines:4} lines {seconds[name]:6.2f} CPU s")
print(f"{'with linking':36} {sum(seconds.values()):6.2f} CPU s")

# %%
# Give the device type its name before anything uses it. A process can do this once.
# Loading the library registers the allocator, the guard, the hooks and the kernels. The
# module ``torch.opbook`` is to this device what ``torch.cuda`` is to a GPU.

LIBRARY = Path(FOLDER.name, "backend.so")
opbook_device.load(LIBRARY)
calls = torch.ops.opbook_backend.calls  # what ran since it was last asked
print(torch.accelerator.current_accelerator(), torch.opbook.device_count())

# %%
# ``neg`` runs the kernel of the device, and ``+`` the kernel of the CPU. The log names
# the overload: PyTorch writes ``a + b`` as a call of ``add.out`` on an output that it
# has allocated.

x = torch.arange(6.0).reshape(2, 3)
on_device = x.to("opbook")
negated = torch.neg(on_device)
print(negated.device, calls())
added = on_device + on_device
print(added.device, calls())
torch.testing.assert_close(negated.cpu(), -x)
torch.testing.assert_close(added.cpu(), x + x)

# %%
# An overload is an operator of its own. ``neg_`` and ``out=`` do not reach the kernel
# of ``neg``, but run on the CPU. That is slower, and raises no error.

on_device.clone().neg_()
torch.neg(on_device, out=torch.empty_like(on_device))
print(calls())

# %%
# The dispatch table says the same, for every overload, without running anything.

for name in ("aten::neg", "aten::neg.out"):
    table = torch._C._dispatch_dump_table(name).splitlines()
    row = next(row for row in table if row.startswith("PrivateUse1:"))
    print(name, "->", row.split(" [")[0].replace(f"{SOURCES}/", ""))

# %%
# Views share memory with their base, because the backend has ``as_strided`` and
# ``view``. Write to the view, and read through the base:

column = on_device.t()[0]
column.fill_(9.0)
print(column.stride(), on_device.cpu())
on_device.copy_(x)
_ = calls()

# %%
# Autograd needs the backend's guard, but no kernels of its own, because its formulas
# are made of operators. The gradient of ``neg`` is ``neg``, so the kernel runs again.

leaf = x.to("opbook").requires_grad_()
(torch.neg(leaf) * 3).sum().backward()
print(*calls(), sep="\n")
print(leaf.grad)

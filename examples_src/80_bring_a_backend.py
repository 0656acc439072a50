"""Add a device to PyTorch (bring a backend)
=========================================

Write the fewest functions with which PyTorch works on a device that it does not know.
The device is called ``opbook``, on the device type ``PrivateUse1``. It keeps its memory
on the host, so that it runs on every machine. It has one kernel that computes, for
``aten::neg``, and what makes, copies and views tensors. Almost everything else falls
back to the CPU.

It needs torch, a C++ compiler, and ``examples_src/sources`` of the repository.

.. topics:: 38
"""

import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch.utils.cpp_extension import get_cxx_compiler, include_paths, library_paths

SOURCES = Path(sys.argv[0]).resolve().parent / "sources" / "bring_a_backend"
if not SOURCES.is_dir():
    print("skipped: needs the folder examples_src/sources of the repository beside it")
    sys.exit(77)
COMPILER = shutil.which(get_cxx_compiler().split()[-1])  # no ccache
if COMPILER is None:
    print("skipped: needs a C++ compiler (install g++)")
    sys.exit(77)
FOLDER = tempfile.TemporaryDirectory(prefix="opbook-")

# %%
# The backend needs PyTorch's C++ interface, and holds for the PyTorch that it was
# compiled with. The kernel needs the stable ABI only, and costs a fraction to compile.

FLAGS = ["-std=c++20", "-O1", "-g0", "-fPIC"]
FLAGS += [f"-isystem{folder}" for folder in include_paths()]
STABLE = "-DTORCH_TARGET_VERSION=0x020b000000000000"


def run(*command: str | Path) -> float:
    """Run a compiler; return the CPU seconds it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([COMPILER, *command], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


objects, total = [], 0.0
for name, flags in {"bring_a_backend": [], "bring_a_backend_neg": [STABLE]}.items():
    source = SOURCES / f"{name}.cpp"
    objects.append(Path(FOLDER.name, f"{name}.o"))
    seconds = run(*FLAGS, *flags, "-c", source, "-o", objects[-1])
    lines = len(source.read_text().splitlines())
    print(f"{source.name:25} {lines:4} lines {seconds:6.2f} CPU s")
    total += seconds

LIBRARY = Path(FOLDER.name, "backend.so")
link = [f"-L{folder}" for folder in library_paths()]
link += ["-ltorch", "-ltorch_cpu", "-lc10"]
link += ["-Wl,--exclude-libs,ALL"]  # errors must not meet a second libstdc++
total += run("-shared", *objects, "-o", LIBRARY, *link)
print(f"{'with linking':36} {total:6.2f} CPU s")

# %%
# Give the device type its name before anything uses it. A process can do so once.
# Loading the library registers allocator, guard, hooks and kernels.

torch.utils.rename_privateuse1_backend("opbook")
torch.ops.load_library(LIBRARY)
calls = torch.ops.opbook_backend.calls  # what ran since it was last asked

# %%
# PyTorch asks the module ``torch.opbook`` what it asks ``torch.cuda`` on a GPU.


class Backend:
    """The module ``torch.opbook``."""

    @staticmethod
    def is_available() -> bool:
        """Whether a tensor can be put on the device."""
        return True

    @staticmethod
    def is_initialized() -> bool:
        """Whether the first use, which may be slow, is over."""
        return True

    @staticmethod
    def device_count() -> int:
        """Count the devices."""
        return torch.ops.opbook_backend.device_count()

    @staticmethod
    def current_device() -> int:
        """Number of the device that new tensors are put on."""
        return torch.accelerator.current_device_index()

    @staticmethod
    def device(device: torch.device):
        """Make a device the current one, in a ``with`` block."""
        return torch.accelerator.device_index(torch.device(device).index or 0)

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        """Seed the generators; random numbers come from the CPU's."""

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        """The dtypes that autocast may choose."""
        return [torch.float16, torch.bfloat16]


torch._register_device_module("opbook", Backend())
torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)

# %%
# ``neg`` runs the kernel, and what else computes the CPU's. The log names the overload:
# PyTorch writes ``a + b`` as a call of ``add.out`` on an output that it has allocated.

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
# of ``neg``. Nothing fails: it is slower, and only a log tells.

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
# Views share memory with their base, for the backend brings ``as_strided`` and
# ``view``. Written to the view, read through the base:

column = on_device.t()[0]
column.fill_(9.0)
print(column.stride(), on_device.cpu())
on_device.copy_(x)
_ = calls()

# %%
# Autograd needs the guard of a backend and no kernels: its formulas are made of
# operators. The gradient of ``neg`` is ``neg``, and runs the kernel again.

leaf = x.to("opbook").requires_grad_()
(torch.neg(leaf) * 3).sum().backward()
print(*calls(), sep="\n")
print(leaf.grad)

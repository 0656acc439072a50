"""Load two libraries into one namespace
=====================================

Two libraries want to register operators in the same namespace. Only one of them may
open it, and a signal ends the process when the second one tries. Let the second library
add a *fragment*, and both can be loaded, in either order.
:doc:`/dispatch/share_a_namespace` has more ways in which two libraries collide.

It needs torch and a C++ compiler.

.. topics:: 11 31 32 33 34
"""

import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from torch.utils.cpp_extension import get_cxx_compiler, include_paths, library_paths

COMPILER = shutil.which(get_cxx_compiler().split()[-1])
if COMPILER is None:
    print("skipped: needs a C++ compiler (install g++)")
    sys.exit(77)

# %%
# All libraries here are this file, compiled with different values of ``OPEN``, the
# macro that opens the namespace, and ``NAME``, the operator's name.

SOURCE = r"""
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;

Tensor matmul(const Tensor& left, const Tensor& right) {
  STD_TORCH_CHECK(left.dim() == 2 && right.dim() == 2 && left.size(1) == right.size(0),
                  "matmul: expected matrices of shapes [m, k] and [k, n]");
  STD_TORCH_CHECK(left.scalar_type() == torch::headeronly::ScalarType::Float &&
                      right.scalar_type() == left.scalar_type(),
                  "matmul: expected fp32 matrices");
  const Tensor a = torch::stable::contiguous(left);
  const Tensor b = torch::stable::contiguous(right);
  const int64_t rows = a.size(0), inner = a.size(1), columns = b.size(1);
  const Tensor output = torch::stable::new_zeros(a, {rows, columns});
  const auto *x = (const float*)a.data_ptr(), *y = (const float*)b.data_ptr();
  auto* z = (float*)output.data_ptr();
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < inner; ++k) {
      for (int64_t j = 0; j < columns; ++j) {
        z[i * columns + j] += x[i * inner + k] * y[k * columns + j];
      }
    }
  }
  return output;
}

OPEN(shared_ops, m) { m.def(NAME "(Tensor left, Tensor right) -> Tensor"); }

STABLE_TORCH_LIBRARY_IMPL(shared_ops, CPU, m) { m.impl(NAME, TORCH_BOX(&matmul)); }
"""
folder = tempfile.TemporaryDirectory(prefix="shared-")
source = Path(folder.name, "matmul.cpp")
source.write_text(SOURCE)

# %%
# Compile one library that opens the namespace, and the second one twice: it opens the
# namespace as well, or adds a fragment to it. Compilers run at the same time.

OPENS, ADDS = "STABLE_TORCH_LIBRARY", "STABLE_TORCH_LIBRARY_FRAGMENT"
libraries = {
    "first": {"OPEN": OPENS, "NAME": '"matmul"'},
    "second": {"OPEN": OPENS, "NAME": '"matmul_again"'},
    "fragment": {"OPEN": ADDS, "NAME": '"matmul_again"'},
}
flags = ["-O2", "-std=c++20", "-fPIC", "-shared"]
flags += [f"-isystem{path}" for path in include_paths()]
link = [*(f"-L{path}" for path in library_paths()), "-ltorch", "-ltorch_cpu", "-lc10"]
# A libstdc++ that is linked in would catch no exception of PyTorch's own.
link += ["-Wl,--exclude-libs,ALL"] * (sys.platform == "linux")


def compile(name: str) -> None:
    """Compile the source to a library of this name."""
    macros = [f"-D{macro}={value}" for macro, value in libraries[name].items()]
    target = ["-o", source.with_name(f"{name}.so")]
    subprocess.run([COMPILER, *flags, *macros, source, *target, *link], check=True)


with ThreadPoolExecutor() as pool:
    list(pool.map(compile, libraries))

# %%
# If a process loads two libraries that open the same namespace, a signal ends it. This
# happens in a function that runs while the library is loaded, where Python cannot catch
# it, so another process has to show it. The macro of the stable ABI says nothing before
# that; ATen's ``TORCH_LIBRARY`` says which two files opened the namespace.

PROGRAM = """
import sys, torch

for library in sys.argv[1:]:
    torch.ops.load_library(library)
    print("loaded", library.rpartition("/")[2], flush=True)
left, right = torch.randn(3, 4), torch.randn(4, 5)
for name in ("matmul", "matmul_again"):
    result = getattr(torch.ops.shared_ops, name)(left, right)
    torch.testing.assert_close(result, left @ right)
    print(name, "agrees with eager")
"""


def load(*names: str) -> subprocess.CompletedProcess:
    """Load libraries in this order in a process of their own."""
    paths = [source.with_name(f"{name}.so") for name in names]
    command = [sys.executable, "-c", PROGRAM, *paths]
    return subprocess.run(command, capture_output=True, text=True)


orders = [("first", "second"), ("first", "fragment")]
with ThreadPoolExecutor() as pool:
    ends = list(pool.map(lambda names: load(*names), orders))
for names, done in zip(orders, ends, strict=True):
    status = done.returncode
    print(*names, "->", signal.Signals(-status).name if status < 0 else status)
    print(done.stdout)

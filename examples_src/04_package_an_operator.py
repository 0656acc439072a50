"""Package an operator: setup.py, wheel, install
=============================================

Make an installable package of an operator. You write its four files into an empty
folder, build a wheel, install the wheel, and call the operator from another process.
The package then needs no compiler where it is used. :doc:`/guide/7_package` builds one
with a GPU kernel, and :doc:`/howto/publish` prepares a wheel for other machines.

It needs torch, setuptools, pip, ninja and a C++ compiler.

.. topics:: 12 34 41 42 48 50
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

os.environ["PATH"] += os.pathsep + sysconfig.get_path("scripts")  # pip's ninja
for package in ("torch", "setuptools", "pip"):
    if importlib.util.find_spec(package) is None:
        print(f"skipped: needs {package}")
        sys.exit(77)
for tool in ("ninja", os.environ.get("CXX", "c++").split()[-1]):
    if shutil.which(tool) is None:
        print(f"skipped: needs {tool}")
        sys.exit(77)

# %%
# ``setup.py`` says what is compiled. The operator is registered when the library is
# loaded, so the library needs no Python code of its own but an empty module. With
# ``py_limited_api``, that module works in later versions of Python, too, but not in
# free-threaded ones.

SETUP = """
import sys

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

setup(
    name="cube",
    version="0.1",
    packages=["cube"],
    ext_modules=[
        CppExtension("cube._C", ["cube.cpp"], extra_compile_args=["-O3", "-g0"],
                     # A libstdc++ that is linked in would break exceptions.
                     extra_link_args=["-Wl,--exclude-libs,ALL"]
                     * (sys.platform == "linux"),
                     py_limited_api=True)
    ],
    cmdclass={"build_ext": BuildExtension},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
"""

# %%
# ``pyproject.toml`` names what the build needs. A build that imports torch has to run
# with the torch that the operator will be used with, and not with a copy that pip
# downloads for the build. That is what ``--no-build-isolation`` below is for.

PYPROJECT = """
[build-system]
requires = ["setuptools", "torch", "ninja"]
build-backend = "setuptools.build_meta"
"""

# %%
# The C++ file holds the kernel, the registration and the empty module.

OPERATOR = """
#include <Python.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;

Tensor cube(const Tensor& input) {
  STD_TORCH_CHECK(input.scalar_type() == torch::headeronly::ScalarType::Float,
                  "cube: expected fp32, but got ", input.scalar_type());
  const Tensor x = torch::stable::contiguous(input);
  const Tensor output = torch::stable::empty_like(x);
  const auto* from = static_cast<const float*>(x.const_data_ptr());
  auto* to = static_cast<float*>(output.mutable_data_ptr());
  torch::stable::parallel_for(0, x.numel(), 4096, [=](int64_t i, int64_t end) {
    for (; i < end; ++i) to[i] = from[i] * from[i] * from[i];
  });
  return output;
}

STABLE_TORCH_LIBRARY(cube, m) { m.def("cube(Tensor input) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(cube, CPU, m) { m.impl("cube", TORCH_BOX(&cube)); }

PyMODINIT_FUNC PyInit__C(void) {
  static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", nullptr, 0, nullptr};
  return PyModule_Create(&module);
}
"""

# %%
# ``__init__.py`` loads torch first, whose libraries the extension is linked to, and
# then the extension, which registers the operator. Its users import ``cube`` from here.

PACKAGE = '''
"""An operator in a package."""

import torch

from . import _C  # registers torch.ops.cube

__all__ = ["cube"]


@torch.library.register_fake("cube::cube")
def _(input):
    return torch.empty_like(input, memory_format=torch.contiguous_format)


def cube(input: torch.Tensor) -> torch.Tensor:
    """Return the third power of each element."""
    return torch.ops.cube.cube(input)
'''

FOLDER = tempfile.TemporaryDirectory(prefix="cube-")
project = Path(FOLDER.name, "project")
files = {"setup.py": SETUP, "pyproject.toml": PYPROJECT, "cube.cpp": OPERATOR}
for name, text in (files | {"cube/__init__.py": PACKAGE}).items():
    path = project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)

# %%
# Build the wheel. A wheel is a zip archive, and its name says where it can be
# installed: with Python 3.10 or later (``cp310-abi3``), and on which system.


def pip(*arguments: str | Path) -> None:
    """Run pip quietly, and show what it says if it fails."""
    command = [sys.executable, "-m", "pip", "--quiet", *arguments]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", "dist", ".")
(wheel,) = project.glob("dist/*.whl")
print(wheel.name)
for file in zipfile.ZipFile(wheel).infolist():
    print(f"{file.file_size:8} bytes  {file.filename}")

# %%
# Install the wheel. Without ``--target``, pip would install it where torch is.

pip("install", "--no-deps", "--no-index", "--target", "../installed", wheel)

# %%
# Another process imports the package and calls the operator. It also compiles a
# function with it, which the fake kernel in the package allows.

CALL = """
import cube, torch

x = torch.randn(1000)
torch.testing.assert_close(cube.cube(x), x * x * x)
compiled = torch.compile(cube.cube, fullgraph=True, backend="eager")
torch.testing.assert_close(compiled(x), x * x * x)
print("called", cube.cube(torch.tensor([1.0, 2.0, 3.0])))
print(torch.ops.cube.cube.default._schema)
"""
environment = os.environ | {"PYTHONPATH": str(project.parent / "installed")}
done = subprocess.run(
    [sys.executable, "-c", CALL], env=environment, capture_output=True, text=True
)
if done.returncode:
    sys.exit(done.stderr)
print(done.stdout)

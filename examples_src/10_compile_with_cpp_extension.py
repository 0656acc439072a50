"""Compile an operator while you edit it
=====================================

While you edit an operator, PyTorch can compile it without ``pip install``.
:func:`torch.utils.cpp_extension.load` compiles the sources you name, loads the library,
and next time compiles only what changed.

It needs torch, ninja, a C++ compiler, and a clone of the repository, whose starter it
compiles.

.. topics:: 44
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import torch
from torch.utils import cpp_extension

SOURCES = Path(sys.argv[0]).resolve().parents[1] / "starter" / "cpp" / "csrc"
if not SOURCES.is_dir():
    print("skipped: needs starter/cpp/csrc: run it in examples_src/ of a clone")
    sys.exit(77)

# %%
# ``load`` runs ninja, which pip installs beside ``python``. An environment that is used
# without being activated has that folder missing from ``PATH``.

os.environ["PATH"] = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
if not cpp_extension.is_ninja_available():
    print("skipped: needs ninja (pip install ninja)")
    sys.exit(77)

# %%
# Without a GPU, the C++ file alone makes the CPU operator. With one, the ``.cu`` file
# joins in, and ``USE_CUDA`` makes the C++ file register its launchers.

toolkit = cpp_extension.CUDA_HOME or cpp_extension.ROCM_HOME
gpu = torch.cuda.is_available() and toolkit is not None
device = "cuda" if gpu else "cpu"
sources = [SOURCES / "swiglu_op.cpp"] + ([SOURCES / "swiglu.cu"] if gpu else [])
print(device, [source.name for source in sources])

# %%
# An installed package has registered its operators already, and a name can be
# registered only once per process. This flag renames the C++ namespace, and with it the
# operator's, so that your edit runs beside the installed version.

flags = [
    "-O3",
    "-std=c++20",
    "-Dstarter=starter_jit",
    "-DTORCH_TARGET_VERSION=0x020b000000000000",
]
flags += ["-DUSE_CUDA"] if gpu else []

# %%
# ``load`` keeps its files in a cache below your home directory, under the name alone:
# two checkouts share it, a build that was killed leaves a lock in it, and whatever
# library lies there is loaded and run. A private folder avoids all three.

cache = tempfile.TemporaryDirectory(prefix="starter-")

# PyTorch 2.13 runs the compiler through ccache where it is installed. A second run of
# this script would then show how long ccache takes.
os.environ["TORCH_NO_COMPILER_WRAPPER"] = "1"


def load() -> float:
    """Build what is out of date and load the library; return the seconds it took."""
    start = time.perf_counter()
    cpp_extension.load(
        name="starter_jit",
        sources=[str(source) for source in sources],
        extra_cflags=flags,
        extra_cuda_cflags=flags,
        build_directory=cache.name,
        is_python_module=False,  # it registers operators and has no Python module
    )
    return time.perf_counter() - start


print(f"cold: {load():.2f} s")

# %%
# The operator is there, and computes what eager PyTorch computes.

gate, up = torch.randn(2, 512, 4096, device=device)
output = torch.ops.starter_jit.swiglu(gate, up)
expected = torch.nn.functional.silu(gate) * up
torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)
print(torch.ops.starter_jit.swiglu.default._schema)

# %%
# The cache holds the build file, the objects with a record of the headers each one was
# compiled from, and the library.

for path in sorted(Path(cache.name).iterdir()):
    print(f"{path.stat().st_size / 1024:8.1f} KiB  {path.name}")

# %%
# A second call finds the same sources and flags and compiles nothing. Another process
# asks ninja, which compares the files' times.

warm = load()
print(f"warm: {warm:.4f} s")
done = subprocess.run(["ninja", "-C", cache.name], capture_output=True, text=True)
print(done.stdout.splitlines()[-1])
assert warm < 0.5
assert "no work to do" in done.stdout

# %%
# To clear the cache, delete the folder. The default one is
# ``~/.cache/torch_extensions``, or ``TORCH_EXTENSIONS_DIR``. Its files do not know
# which torch they were built with: clear it when you upgrade.

cache.cleanup()
assert not Path(cache.name).exists()

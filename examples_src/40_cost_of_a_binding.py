"""Compare three ways to bind an operator
======================================

Bind the same C++ function to Python in three ways: with the LibTorch Stable ABI,
``TORCH_LIBRARY``, and pybind11. All three compute the same numbers, but differ in what
a build costs, and in what PyTorch knows about the result.

It needs torch, a C++ compiler, the folder ``examples_src/sources`` of the repository,
and matplotlib for the chart.

.. topics:: 30 31 33 51 75
"""

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import timeit
from pathlib import Path
from sysconfig import get_path

import torch
from torch.utils.cpp_extension import get_cxx_compiler, include_paths, library_paths

SOURCES = Path(sys.argv[0]).resolve().parent / "sources" / "bind_three_ways"
if not SOURCES.is_dir():
    print("skipped: needs the folder examples_src/sources of the repository beside it")
    sys.exit(77)
COMPILER = shutil.which(get_cxx_compiler().split()[-1])  # no ccache
if COMPILER is None:
    print("skipped: needs a C++ compiler (install g++)")
    sys.exit(77)
FOLDER = tempfile.TemporaryDirectory(prefix="opbook-")
BINDINGS = {"stable": "Stable ABI", "library": "TORCH_LIBRARY", "pybind": "pybind11"}

# %%
# The function is a loop over floats. This is what each binding adds to it:

for binding in BINDINGS:
    print((SOURCES / f"scale_{binding}.cpp").read_text().partition("// [binding] ")[2])

# %%
# The operating system counts the time and the peak memory of each finished child
# process. A small process starts the compiler and reads these counts, because a child
# of this process, which holds PyTorch, would count this process's peak memory too.

MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
"""

# %%
# Compile the three with the same flags, one after another.

flags = ["-std=c++20", "-O1", "-g0", "-fPIC", "-shared"]
flags += [f"-isystem{folder}" for folder in [*include_paths(), get_path("include")]]
link = [f"-L{folder}" for folder in library_paths()]
link += ["-ltorch", "-ltorch_cpu", "-lc10"]
own = {"stable": ["-DTORCH_TARGET_VERSION=0x020b000000000000"], "library": []}
own["pybind"] = ["-DTORCH_EXTENSION_NAME=scale_pybind", "-ltorch_python"]
figures = {}
for binding in BINDINGS:
    library = Path(FOLDER.name, f"scale_{binding}.so")
    measure = [sys.executable, "-I", "-S", "-c", MEASURE, COMPILER, *flags]
    measure += [SOURCES / f"scale_{binding}.cpp", "-o", library, *link, *own[binding]]
    report = subprocess.run(measure, stdout=subprocess.PIPE, text=True, check=True)
    seconds, peak = map(float, report.stdout.split())
    figures[binding] = [seconds, peak / 1024, library.stat().st_size / 1024]

# %%
# The stable ABI and ``TORCH_LIBRARY`` register an operator: ``torch.ops`` finds it once
# the library is loaded, and the profiler sees it. With a fake kernel, which both lack
# here, ``torch.compile`` and ``torch.export`` take it as one node. pybind11 makes a
# module with a function that PyTorch does not know.

torch.ops.load_library(Path(FOLDER.name, "scale_stable.so"))
torch.ops.load_library(Path(FOLDER.name, "scale_library.so"))
sys.path.insert(0, FOLDER.name)
pybind = importlib.import_module("scale_pybind")
functions = [torch.ops.scale_stable.scale, torch.ops.scale_library.scale, pybind.scale]

# %%
# All three functions return what eager PyTorch returns. With one element there is
# hardly any arithmetic, so the time of a call is that of the binding and of one
# allocation.

input, one = torch.randn(1000), torch.ones(1)
for measured, function in zip(figures.values(), functions, strict=True):
    torch.testing.assert_close(function(input, 3.0), input * 3.0, rtol=0, atol=0)
    runs = timeit.repeat(lambda function=function: function(one, 3.0), number=20_000)
    measured.append(min(runs) / 20_000 * 1e6)

# %%
# The stable ABI is the cheapest to build, because its headers are small, while
# pybind11's ``torch/extension.h`` is all of PyTorch's C++. pybind11 is the cheapest to
# call, because the call bypasses the dispatcher, and with it autograd, autocast and
# tracing.

units = ("build, CPU s", "peak memory, MiB", "library, KiB", "call, µs")
print(f"{'':14}" + "".join(f"{unit:>18}" for unit in units))
for binding, name in BINDINGS.items():
    print(f"{name:14}" + "".join(f"{value:18.2f}" for value in figures[binding]))
columns = list(zip(*figures.values(), strict=True))
assert all(sorted(column) == list(column) for column in columns[:2])

# %%
# The same figures as bars: shorter is better in all four.

if importlib.util.find_spec("matplotlib") is None:
    print("no chart: needs matplotlib")
    sys.exit()

import matplotlib.pyplot as plt

GREY = "#808080"  # readable on white and on black
figure, axes = plt.subplots(2, 2, figsize=(8, 4), facecolor="none", sharey=True)
figure.set_layout_engine("constrained")
for axis, unit, values in zip(axes.flat, units, columns, strict=True):
    bars = axis.barh([*BINDINGS.values()], values, 0.6, color="#5b8db8")
    axis.bar_label(bars, fmt="{:,.4g}", padding=4, color=GREY)
    axis.set_title(unit, color=GREY)
    axis.set(xmargin=0.2, xticks=[], frame_on=False)
    axis.tick_params(length=0, labelcolor=GREY)
axes[0, 0].invert_yaxis()
plt.show()

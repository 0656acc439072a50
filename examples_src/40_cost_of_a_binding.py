"""Compare three ways to bind an operator
======================================

Bind the same C++ function to Python in three ways: with the LibTorch Stable ABI,
``TORCH_LIBRARY``, and pybind11. All three compute the same numbers, but differ in what
a build costs, and in what PyTorch knows about the result.
:doc:`/explain/which_mechanism` says when to choose which.

It needs torch and a C++ compiler, and matplotlib for the chart.

.. topics:: 30 31 33 51 75
"""

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import timeit
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from sysconfig import get_path

import torch
from torch.utils.cpp_extension import get_cxx_compiler, include_paths, library_paths

COMPILER = shutil.which(get_cxx_compiler().split()[-1])  # no ccache
if COMPILER is None:
    print("skipped: needs a C++ compiler (install g++)")
    sys.exit(77)
FOLDER = tempfile.TemporaryDirectory(prefix="opbook-")

# %%
# The function is a loop over floats:

FUNCTION = """
#include <cstdint>

inline void scale_values(const float* input, float* output, int64_t count,
                         float factor) {
  for (int64_t i = 0; i < count; ++i) output[i] = input[i] * factor;
}
"""

# %%
# The stable ABI has headers, tensors and checks of its own. They stay the same in later
# versions of PyTorch, so the library need not be compiled again for them.

STABLE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

torch::stable::Tensor scale(const torch::stable::Tensor& input, double factor) {
  STD_TORCH_CHECK(input.scalar_type() == torch::headeronly::ScalarType::Float &&
                  input.is_contiguous(), "scale: expected contiguous fp32");
  torch::stable::Tensor output = torch::stable::empty_like(input);
  scale_values(static_cast<const float*>(input.const_data_ptr()),
               static_cast<float*>(output.mutable_data_ptr()), input.numel(), factor);
  return output;
}

STABLE_TORCH_LIBRARY(scale_stable, m) {
  m.def("scale(Tensor input, float factor) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(scale_stable, CPU, m) { m.impl("scale", TORCH_BOX(&scale)); }
"""

# %%
# ``TORCH_LIBRARY`` takes PyTorch's own tensors, and pybind11 as well. pybind11 converts
# the arguments itself, so nothing but the function checks the device.

ATEN = """
at::Tensor scale(const at::Tensor& input, double factor) {
  TORCH_CHECK(input.is_cpu() && input.scalar_type() == at::kFloat &&
              input.is_contiguous(), "scale: expected contiguous fp32 on the CPU");
  at::Tensor output = at::empty_like(input);
  scale_values(input.const_data_ptr<float>(), output.mutable_data_ptr<float>(),
               input.numel(), factor);
  return output;
}
"""
LIBRARY = f"""
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>
{ATEN}
TORCH_LIBRARY(scale_library, m) {{
  m.def("scale(Tensor input, float factor) -> Tensor");
}}

TORCH_LIBRARY_IMPL(scale_library, CPU, m) {{ m.impl("scale", &scale); }}
"""
PYBIND = f"""
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/utils/pybind.h>
{ATEN}
PYBIND11_MODULE(scale_pybind, m) {{ m.def("scale", &scale); }}
"""
BINDINGS = {"Stable ABI": STABLE, "TORCH_LIBRARY": LIBRARY, "pybind11": PYBIND}

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
# Compile the three with the same flags, two at a time.

flags = ["-std=c++20", "-O1", "-g0", "-fPIC", "-shared"]
flags += [f"-isystem{folder}" for folder in [*include_paths(), get_path("include")]]
link = [f"-L{folder}" for folder in library_paths()]
link += ["-ltorch", "-ltorch_cpu", "-lc10"]
names = {"Stable ABI": "scale_stable", "TORCH_LIBRARY": "scale_library"}
names["pybind11"] = "scale_pybind"


def build(binding: str) -> list[float]:
    """Compile and link; return CPU seconds, peak MiB and the size in KiB."""
    library = Path(FOLDER.name, f"{names[binding]}.so")
    source = library.with_suffix(".cpp")
    source.write_text(FUNCTION + BINDINGS[binding])
    own = ["-ltorch_python"] if binding == "pybind11" else []
    measure = [sys.executable, "-I", "-S", "-c", MEASURE, COMPILER, *flags]
    measure += [source, "-o", library, *link, *own]
    report = subprocess.run(measure, stdout=subprocess.PIPE, text=True, check=True)
    seconds, peak = map(float, report.stdout.split())
    return [seconds, peak / 1024, library.stat().st_size / 1024]


heaviest_first = ["pybind11", "TORCH_LIBRARY", "Stable ABI"]
with ThreadPoolExecutor(2) as pool:
    built = dict(zip(heaviest_first, pool.map(build, heaviest_first), strict=True))
figures = {binding: built[binding] for binding in BINDINGS}

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
# The stable ABI is the cheapest to build, because its headers are small, and pybind11
# the most expensive. Most extensions include ``torch/extension.h``, which has these
# headers and the rest of PyTorch's C++, and takes longer still. pybind11 is the
# cheapest to call, because the call bypasses the dispatcher, and with it autograd,
# autocast and tracing.

units = ("build, CPU s", "peak memory, MiB", "library, KiB", "call, µs")
print(f"{'':14}" + "".join(f"{unit:>18}" for unit in units))
for binding, values in figures.items():
    print(f"{binding:14}" + "".join(f"{value:18.2f}" for value in values))
columns = list(zip(*figures.values(), strict=True))
if any(sorted(column) != list(column) for column in columns[:2]):
    sys.exit("the builds have another order than the text says")

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
    bars = axis.barh([*figures], values, 0.6, color="#5b8db8")
    axis.bar_label(bars, fmt="{:,.4g}", padding=4, color=GREY)
    axis.set_title(unit, color=GREY)
    axis.set(xmargin=0.2, xticks=[], frame_on=False)
    axis.tick_params(length=0, labelcolor=GREY)
axes[0, 0].invert_yaxis()
plt.show()

"""Write tests that find a planted fault
=====================================

Test an operator, and then test the tests. Pytest runs the same tests on a correct
kernel and on two copies with a fault. A test that passes on all three would tell you
nothing of these faults. :doc:`/reduction/3_test` has tests for more kinds of
faults.

It needs torch, pytest, ninja and a C++ compiler.

.. topics:: 5 6 13 76 77 81 82
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ["PATH"] += os.pathsep + sysconfig.get_path("scripts")  # pip's ninja
for package in ("torch", "pytest"):
    if importlib.util.find_spec(package) is None:
        print(f"skipped: needs {package}")
        sys.exit(77)
for tool in ("ninja", os.environ.get("CXX", "c++").split()[-1]):
    if shutil.which(tool) is None:
        print(f"skipped: needs {tool}")
        sys.exit(77)

# %%
# The kernel computes the mean of each row. It adds up four sums at once, which a
# compiler turns into vector instructions, and then the tail: the columns that are left.

KERNEL = r"""
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;

Tensor row_means(const Tensor& input) {
  STD_TORCH_CHECK(input.dim() == 2, "row_means: expected a matrix, but got ",
                  input.dim(), " dimensions");
  STD_TORCH_CHECK(input.scalar_type() == torch::headeronly::ScalarType::Float,
                  "row_means: expected fp32, but got ", input.scalar_type());
  const Tensor rows = torch::stable::contiguous(input);
  const int64_t count = rows.size(0), columns = rows.size(1);
  const Tensor output = torch::stable::new_empty(rows, {count});
  const auto* data = static_cast<const float*>(rows.const_data_ptr());
  auto* means = static_cast<float*>(output.mutable_data_ptr());
  for (int64_t row = 0; row < count; ++row, data += columns) {
    float sums[4] = {}, tail = 0;
    int64_t i = 0;
    for (; i + 4 <= columns; i += 4) {
      for (int lane = 0; lane < 4; ++lane) sums[lane] += data[i + lane];
    }
    for (; i < columns; ++i) tail += data[i];
    means[row] = (sums[0] + sums[1] + sums[2] + sums[3] + tail) / columns;
  }
  return output;
}

STABLE_TORCH_LIBRARY(tested, m) { m.def("row_means(Tensor input) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(tested, CPU, m) {
  m.impl("row_means", TORCH_BOX(&row_means));
}
"""

# %%
# Each test asks eager PyTorch for the expected value. Sizes around the kernel's four
# columns reach the loop alone, the tail alone, both, and neither; a transposed matrix
# reaches the kernel with strides. :func:`torch.library.opcheck` would test the
# registration beside the numbers.

TESTS = r"""
import pathlib
import sys

import pytest
import torch
from torch.utils import cpp_extension

HERE = pathlib.Path(__file__).parent
cpp_extension.load_inline(
    "tested",
    (HERE / "kernel.cpp").read_text(),
    extra_cflags=["-O2"],
    # A libstdc++ that is linked in would catch no exception of PyTorch's own.
    extra_ldflags=["-Wl,--exclude-libs,ALL"] * (sys.platform == "linux"),
    build_directory=str(HERE),
    is_python_module=False,
    no_implicit_headers=True,
)
row_means = torch.ops.tested.row_means


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("columns", [1, 3, 4, 8, 9, 1001])
def test_agrees_with_eager(rows, columns):
    input = torch.randn(rows, columns)
    torch.testing.assert_close(row_means(input), input.mean(1))


def test_empty_rows_have_no_mean():
    torch.testing.assert_close(row_means(torch.empty(2, 0)), torch.empty(2, 0).mean(1),
                               equal_nan=True)


@pytest.mark.parametrize("input", [torch.randn(8, 4).t(), torch.randn(8, 8)[:, ::2]],
                         ids=["transposed", "every second"])
def test_reads_strided_input(input):
    torch.testing.assert_close(row_means(input), input.mean(1))


@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4)])
def test_refuses_what_is_no_matrix(shape):
    with pytest.raises(RuntimeError, match="expected a matrix"):
        row_means(torch.ones(shape))
"""

# %%
# Each fault is an edit of the kernel that its author could have forgotten to make.

FAULTS = {
    "no fault": ("", ""),
    "the tail is left out": ("for (; i < columns; ++i) tail += data[i];", ""),
    "strides are ignored": ("torch::stable::contiguous(input)", "input"),
}


def run_pytest(fault: str) -> tuple[int, list[str]]:
    """Run the tests on a copy of the kernel; return the status and the last lines."""
    old, new = FAULTS[fault]
    if KERNEL.count(old) == 0:
        raise ValueError(f"{fault}: the kernel has no {old!r}")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kernel.cpp").write_text(
            KERNEL.replace(old, new) if old else KERNEL
        )
        Path(folder, "test_row_means.py").write_text(TESTS)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--tb=no",
            "-p",
            "no:cacheprovider",
        ]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


# %%
# The correct kernel ends with status 0, which says that tests ran and passed. Status 1
# says that a test failed, and 5 that pytest found no test.

with ThreadPoolExecutor(2) as pool:
    ends = dict(zip(FAULTS, pool.map(run_pytest, FAULTS), strict=True))
for fault, (status, lines) in ends.items():
    print(f"{fault}: status {status}")
    failed = [line.split(" - ")[0] for line in lines if line.startswith("FAILED")]
    print(*failed, lines[-1], sep="\n", end="\n\n")

# %%
# Both faults are noticed, and each by the tests that were written for it. A fault that
# no test notices asks for one more test.

for fault, (status, _) in ends.items():
    if (status == 0) != (fault == "no fault"):
        sys.exit(f"{fault}: pytest ended with {status}")

"""The starter's exponential for CPUs, which is a polynomial."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

HEADERS = Path(__file__).parents[2] / "starter" / "cpp" / "csrc"
LOOP = """
#include "portable.h"
extern "C" void all_exp(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = starter::fast_exp(x[i]);
}
"""


@pytest.fixture(scope="module")
def fast_exp(tmp_path_factory):
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("fast_exp")
    source, library = folder / "loop.cpp", folder / "loop.so"
    source.write_text(LOOP)
    include = [f"-I{path}" for path in (HEADERS, *cpp_extension.include_paths())]
    flags = ["-O3", "-std=c++20", "-fno-trapping-math", "-fPIC", "-shared"]
    subprocess.run(["g++", *flags, *include, source, "-o", library], check=True)
    function = ctypes.CDLL(str(library)).all_exp

    def call(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y))
        function(*pointers, ctypes.c_int64(x.numel()))
        return y

    return call


def test_it_errs_by_less_than_one_unit_in_the_last_place(fast_exp):
    x = torch.linspace(-103.9, 88.7, 1 << 20)
    exact = x.double().exp()
    _, exponent = torch.frexp(exact)
    unit = torch.ldexp(torch.ones_like(exact), exponent.clamp(min=-125) - 24)
    assert ((fast_exp(x).double() - exact).abs() / unit).max() < 1


def test_it_ends_as_eager_does(fast_exp):
    inf = float("inf")
    x = torch.tensor([inf, -inf, float("nan"), 0.0, -0.0, 88.8, 1e30, -104.5, -1e30])
    torch.testing.assert_close(fast_exp(x), x.exp(), rtol=0, atol=0, equal_nan=True)

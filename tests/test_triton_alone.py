"""The operators in Triton without the library in C++, and beside their copies."""

import shutil
from pathlib import Path

import pytest

from alone import run, without_library

pytest.importorskip("triton")
TESTS = Path(__file__).parent
INTERPRETED = "import os; os.environ['TRITON_INTERPRET'] = '1'\n"


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    return without_library(tmp_path_factory.mktemp("package"))


def test_an_operator_in_triton_needs_no_library(package, tmp_path):
    code = "import torch, opbook; print(opbook.scale(torch.ones(3), 2.0).tolist())"
    done = run(tmp_path, package, "-c", f"{INTERPRETED}{code}")
    assert done.stdout == "[2.0, 2.0, 2.0]\n", done.stderr


def test_without_the_library_a_gpu_is_enough_for_the_tests(package, tmp_path):
    sees_one = "import torch; torch.cuda.is_available = lambda: True\n"
    code = f"{sees_one}import sys; sys.path.append({str(TESTS)!r}); import gpu"
    done = run(tmp_path, package, "-c", f"{code}; print(gpu.HAS_GPU)")
    assert done.stdout == "True\n", done.stderr


def test_what_is_written_in_cpp_says_how_to_build_it(package, tmp_path):
    done = run(tmp_path, package, "-c", "import opbook; opbook.rms_norm")
    assert "ImportError: opbook.rms_norm is written in C++, and the" in done.stderr
    assert "pip install --no-build-isolation -e ." in done.stderr
    assert f"run: python {package}/opbook/doctor.py" in done.stderr
    done = run(tmp_path, package, "-c", "from opbook import linear_gelu")
    assert "ImportError: opbook.linear_gelu is written in C++" in done.stderr


def test_a_library_that_does_not_load_is_an_error_at_once(package, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(package / "opbook", broken / "opbook")
    (broken / "opbook" / "_C.abi3.so").write_bytes(b"\x7fELF")
    done = run(tmp_path, broken, "-c", "import opbook")
    assert "ImportError" in done.stderr
    assert f"run: python {broken}/opbook/doctor.py" in done.stderr


def test_a_copied_module_cannot_take_the_name_of_the_original(package, tmp_path):
    source = (package / "opbook/triton/scale.py").read_text()
    (tmp_path / "mine.py").write_text(source.replace("x * factor", "x + factor"))
    code = "import opbook.triton, mine"
    done = run(tmp_path, package, "-c", f"{INTERPRETED}{code}")
    assert "mine cannot define opbook_triton::scale: opbook.triton.scale" in done.stderr


def test_the_package_does_not_take_a_name_that_is_defined(package, tmp_path):
    first = (
        "import torch\n"
        "@torch.library.custom_op('opbook_triton::scale', mutates_args=())\n"
        "def scale(x: torch.Tensor, factor: float) -> torch.Tensor: return x + factor\n"
    )
    code = f"{INTERPRETED}{first}import opbook.triton"
    done = run(tmp_path, package, "-c", code)
    assert "opbook_triton::scale: another package has already" in done.stderr


def test_the_same_file_may_be_loaded_under_another_name(package, tmp_path):
    file = package / "opbook/triton/scale.py"
    code = (
        f"import opbook.triton, runpy; runpy.run_path({str(file)!r}); print('loaded')"
    )
    done = run(tmp_path, package, "-c", f"{INTERPRETED}{code}")
    assert done.stdout == "loaded\n", done.stderr

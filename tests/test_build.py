"""What setup.py promises of the library it builds."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opbook import _C

ROOT = Path(__file__).resolve().parents[1]


def setup(**environment):
    """Run setup.py as far as its decisions; nothing is built."""
    return subprocess.run(
        [sys.executable, "setup.py", "--version"],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_gpu_source_includes_more_of_torch_than_its_half_types():
    for path in [
        *ROOT.glob("csrc/*/*.cu"),
        *ROOT.glob("csrc/*/*.h"),
        ROOT / "csrc/portable.h",
    ]:
        included = re.findall(r"#include <(torch/.*)>", path.read_text())
        allowed = {"torch/headeronly/util/BFloat16.h", "torch/headeronly/util/Half.h"}
        assert set(included) <= allowed, path


def test_one_library_serves_every_python():
    assert ".abi3." in Path(_C.__file__).name


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm")
def test_the_library_imports_no_cpp_symbol_of_torch():
    command = ["nm", "-DC", "--undefined-only", _C.__file__]
    symbols = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "torch_" in symbols
    assert not re.findall(r" U (?:c10|at|torch)::.*", symbols)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"USE_CUDA": "yes"}, "USE_CUDA must be 0 or 1, but is 'yes'"),
        (
            {"USE_CUDA": "1", "CUDA_HOME": "/nowhere", "ROCM_HOME": "/nowhere"},
            "USE_CUDA=1, but",
        ),
    ],
)
def test_a_contradiction_is_one_line(environment, message):
    finished = setup(**environment)
    assert finished.returncode != 0
    assert message in finished.stderr
    assert len(finished.stderr.strip().splitlines()) == 1

"""The package as it is where nobody built its library."""

import shutil
import subprocess
import sys
from pathlib import Path

from environment import without

PACKAGE = Path(__file__).resolve().parents[1] / "src/opbook"


def without_library(folder: Path) -> Path:
    """Copy the package's Python files into a folder, for PYTHONPATH."""
    hidden = shutil.ignore_patterns("_C*", "__pycache__")
    shutil.copytree(PACKAGE, folder / "opbook", ignore=hidden)
    return folder


def run(folder: Path, package: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Run Python in a folder of its own, where nobody chose Triton's interpreter."""
    command = [sys.executable, *arguments]
    variables = without("TRITON_", "PROOF_", "COVERAGE_", "PYTHON")
    variables["PYTHONPATH"] = str(package)
    return subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False
    )

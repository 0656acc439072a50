"""The package as it is where nobody built its library."""

import shutil
import subprocess
import sys
from pathlib import Path

from environment import without

sys.path.append(str(Path(__file__).with_name("book")))
import forked

PACKAGE = Path(__file__).resolve().parents[1] / "src/opbook"


def without_library(folder: Path) -> Path:
    """Copy the package's Python files into a folder, for PYTHONPATH."""
    hidden = shutil.ignore_patterns("_C*", "__pycache__")
    shutil.copytree(PACKAGE, folder / "opbook", ignore=hidden)
    return folder


def run(folder: Path, package: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Run Python in a folder of its own, where nobody chose Triton's interpreter."""
    variables = without("TRITON_", "PROOF_", "COVERAGE_", "PYTHON")
    variables["PYTHONPATH"] = str(package)
    return forked.run(arguments, folder, variables, loaded=("torch",))

"""The environment of the processes that a test starts."""

import os
import shutil
from pathlib import Path

# ruff is in the environment of `nox -s lint` alone.
LINT = Path(__file__).parents[1] / ".nox" / "lint" / "bin"
WITH_RUFF = f"{os.environ['PATH']}{os.pathsep}{LINT}"
HAS_RUFF = shutil.which("ruff", path=WITH_RUFF) is not None

# What a run of the book sets for its own processes.
BOOK = ("PROOF_", "COVERAGE_")


def without(*prefixes: str) -> dict[str, str]:
    """This process's variables but those whose names begin so."""
    return {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}

"""Build the starter's wheel for CPUs: the same bytes in every folder."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from sysconfig import get_path

STARTER = Path(__file__).parents[3] / "starter" / "cpp"
made = Path(sys.argv[1]).absolute()
shutil.rmtree(made, ignore_errors=True)

with tempfile.TemporaryDirectory() as folder:
    # The date of the build, and folders in error messages, are in a wheel otherwise.
    hidden = (f"-ffile-prefix-map={path}/=" for path in (folder, get_path("purelib")))
    variables = {
        "SOURCE_DATE_EPOCH": "1767225600",
        "CFLAGS": " ".join(hidden),
        "USE_CUDA": "0",
    }
    ignored = shutil.ignore_patterns("build", "*.egg-info", "*.so")
    project = shutil.copytree(STARTER, Path(folder, "starter"), ignore=ignored)
    pip = "-m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir".split()
    subprocess.run(
        [sys.executable, *pip, made, "."],
        cwd=project,
        env=os.environ | variables,
        check=True,
    )

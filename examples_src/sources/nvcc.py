"""Find nvcc, and compile a CUDA file of this folder into a library."""

import os
import shutil
import subprocess
from pathlib import Path

import torch


def path() -> Path:
    """The compiler, with its toolkit beside it."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return Path(shutil.which("nvcc") or f"{home}/bin/nvcc")


def library(source: Path, folder: Path, *options: str) -> Path:
    """Compile for the GPU at hand.

    Args:
        source: It may include PyTorch's headers.
        folder: Where the library goes, under the name of the source.
        options: Further ones of nvcc.

    Returns:
        The library.
    """
    include = Path(torch.__file__).parent / "include"
    made = folder / f"{source.stem}.so"
    # Not for what PyTorch says: to ask it would start CUDA, and nobody could fork.
    flags = "-shared -Xcompiler -fPIC -std=c++20 -O3 -arch=native".split()
    flags += ["--expt-relaxed-constexpr"]  # the half types call constexpr functions
    command = [path(), *flags, *options, "-I", include, source, "-o", made]
    subprocess.run(command, check=True)
    return made

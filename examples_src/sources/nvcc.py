"""Find nvcc, compile a CUDA file of this folder, and load its launchers."""

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Callable
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


def launchers(library: Path) -> dict[str, Callable]:
    """The functions opbook::launch_NAME of a library, by NAME; each returns a string.

    C++ puts the types of a function's arguments into its name, so ``nm`` is asked.
    """
    command = ["nm", "-D", "--defined-only", library]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    loaded, found = ctypes.CDLL(library), {}
    for mangled in re.finditer(r"_ZN6opbook\d+launch_(\w+?)E\w+", names):
        function = found[mangled[1]] = loaded[mangled[0]]
        function.restype = ctypes.c_char_p
    return found

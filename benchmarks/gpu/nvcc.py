"""Find nvcc, compile a CUDA file and load its launchers."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

BF16 = "IN3c108BFloat16E"  # how a name says <c10::BFloat16>


def path(name: str = "nvcc") -> str:
    """A program of the CUDA toolkit; the script ends where it is missing."""
    toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    found = shutil.which(name) or shutil.which(f"{toolkit}/bin/{name}")
    return found or sys.exit(f"{name} not found: install the CUDA toolkit")


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


class LaunchError(RuntimeError):
    """A launch that failed: the launcher, and CUDA's words."""


def launchers(library: Path) -> dict[str, Callable]:
    """The functions of a library that are launch_NAME in a namespace, by NAME.

    Of a template it is the one for bf16. Each takes what the C++ function takes, a
    tensor for a pointer and the stream by name, and raises :class:`LaunchError` for
    what the function returns.

    C++ puts the types of a function's arguments into its name, so ``nm`` is asked.
    """
    command = ["nm", "-D", "--defined-only", library]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    loaded, found = ctypes.CDLL(library), {}
    launcher = rf"_ZN\d+[a-z]+\d+launch_([a-z0-9_]+)(?:{BF16})?E\w+"
    for mangled in re.finditer(launcher, names):
        function = loaded[mangled[0]]
        function.restype = ctypes.c_char_p
        found[mangled[1]] = partial(launch, mangled[1], function)
    return found


def launch(
    name: str, function: Callable, *arguments: torch.Tensor | float, stream: int
) -> None:
    """Call one of them, on the stream of this handle."""
    error = function(*map(plain, arguments), ctypes.c_void_p(stream))
    if error is not None:
        raise LaunchError(f"{name}: kernel launch failed: {error.decode()}")


def plain(argument: torch.Tensor | float) -> ctypes._SimpleCData:
    """The C value of an argument: a pointer, float or int64_t."""
    if isinstance(argument, torch.Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    return (ctypes.c_float if isinstance(argument, float) else ctypes.c_int64)(argument)

"""Kernels that replace some of PyTorch's, built when this package is first imported.

Environment variables, read at the import:

- ``SELFBUILT=0``: import the package, and replace nothing
- ``SELFBUILT_DISABLE_neg=1``: leave one operator to PyTorch
- ``SELFBUILT_KEY``: the dispatch key of the device, "CPU" if not set
- ``SELFBUILT_LOG=1``: write a line for each call
- ``SELFBUILT_VERBOSE=1``: show what the compiler is called with, and what it says
"""

import hashlib
import os
from pathlib import Path

import torch
from torch.utils import cpp_extension

KEY = os.environ.get("SELFBUILT_KEY", "CPU")
SOURCE = Path(__file__).with_name("registry.cpp")
FLAGS = ["-O3", "-std=c++20", "-DTORCH_TARGET_VERSION=0x020b000000000000"]
FLAGS += [f"-DSELFBUILT_KEY={KEY}"]


def name() -> str:
    """A name for the library that changes with everything it is made of."""
    made_of = "\n".join([torch.__version__, *FLAGS, SOURCE.read_text()])
    return f"selfbuilt_{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"


def build() -> None:
    """Build the library, unless it is in the cache, and load it."""
    verbose = os.environ.get("SELFBUILT_VERBOSE") == "1"
    options = {"extra_cflags": FLAGS, "verbose": verbose, "is_python_module": False}
    try:
        cpp_extension.load(name(), [str(SOURCE)], **options)
    except (RuntimeError, OSError) as error:
        raise ImportError(
            "selfbuilt: the kernels cannot be built, for the reason above. "
            "SELFBUILT=0 imports the package without them."
        ) from error


def replaced() -> list[str]:
    """The operators of ATen whose kernel at KEY comes from this package."""
    tables = {op: torch._C._dispatch_dump_table(f"aten::{op}") for op in OPERATORS}
    return [op for op in OPERATORS if f"{KEY}: registered at {SOURCE}" in tables[op]]


OPERATORS = ("neg", "silu", "mish")
if os.environ.get("SELFBUILT") != "0":
    build()

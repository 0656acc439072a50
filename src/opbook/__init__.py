"""Operators for PyTorch, built by the guide that teaches how to build them."""

import importlib
import sys

# _C links against torch's libraries, which are in memory once torch is imported.
import torch

if f"{__name__}._C" not in sys.modules and hasattr(torch.ops.opbook, "rms_norm"):
    # To register an operator twice ends the process, with no exception to catch.
    raise ImportError(
        f"cannot load {__path__[0]}: another copy of opbook has registered its "
        "operators in this process. Load one of the two, in a new process."
    )
_not_built: ImportError | None = None
try:
    importlib.import_module("opbook._C")  # loads the library: operators register
except ImportError as error:
    error.add_note(f"To learn why, run: python {__path__[0]}/doctor.py")
    if not isinstance(error, ModuleNotFoundError) or error.name != "opbook._C":
        raise
    _not_built = error  # the operators in Triton need no library
else:
    from opbook import nn as nn
    from opbook.gpu import runs_on_gpu as runs_on_gpu
    from opbook.ops.add_rms_norm import add_rms_norm
    from opbook.ops.linear_gelu import linear_gelu
    from opbook.ops.rms_norm import rms_norm, rms_norm_

__all__ = ["add_rms_norm", "linear_gelu", "rms_norm", "rms_norm_"]


def __getattr__(name: str) -> object:
    """Import the operators written in Triton when one is first used.

    Triton is large, not installed everywhere, and reads ``TRITON_INTERPRET`` once.

    Raises:
        ImportError: The name needs the library in C++, which is not built.
    """
    if _not_built and name in (*__all__, "nn", "runs_on_gpu"):
        raise ImportError(
            f"opbook.{name} is written in C++, and the library opbook._C is not built. "
            "Build it, in the repository: python -m pip install "
            "--no-build-isolation -e ."
        ) from _not_built
    if name not in ("triton", "scale"):
        raise AttributeError(f"module 'opbook' has no attribute {name!r}")
    module = importlib.import_module("opbook.triton")
    return module if name == "triton" else module.scale

"""draw::dropout: how it is built and registered, and its interface."""

import shlex
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import Generator, Tensor
from torch.utils.cpp_extension import get_cxx_compiler, include_paths, library_paths

HERE = Path(__file__).resolve().parent
# The oldest PyTorch that a library of the stable ABI shall work with.
SINCE_2_11 = "-DTORCH_TARGET_VERSION=0x020b000000000000"
SINCE_2_13 = "-DTORCH_TARGET_VERSION=0x020d000000000000"


def build(source: str, *options: str) -> None:
    """Compile a C++ source of this folder, and load the library."""
    flags = ["-std=c++20", "-O2", "-g0", "-fPIC", "-shared", *options]
    flags += [f"-isystem{path}" for path in include_paths()]
    link = [*(f"-L{path}" for path in library_paths()), "-ltorch_cpu", "-lc10"]
    compiler = shlex.split(get_cxx_compiler())
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "library.so")
        command = [*compiler, *flags, HERE / source, "-o", library, *link]
        subprocess.run(command, check=True)
        torch.ops.load_library(library)


# [interface]
def draw_state(like: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw a seed and an offset on the device of a tensor."""
    return torch.randint(2**63 - 1, (2,), device=like.device, generator=generator)


def dropout(input: Tensor, p: float, generator: Generator | None = None) -> Tensor:
    """Zero each element with probability p, and scale the others."""
    return torch.ops.draw.dropout(input, p, draw_state(input, generator))


# [/interface]


# [register]
def _save(ctx, inputs, output) -> None:
    _, ctx.p, state = inputs
    ctx.save_for_backward(state)


def _backward(ctx, grad: Tensor):
    (state,) = ctx.saved_tensors
    return torch.ops.draw.dropout(grad, ctx.p, state), None, None


def register() -> None:
    """Add a fake kernel and a gradient to the operator that `build` loaded."""
    name = "draw::dropout"
    torch.library.register_fake(name, lambda input, *_: input.new_empty(input.shape))
    torch.library.register_autograd(name, _backward, setup_context=_save)


# [/register]


def register_draw(name: str) -> None:
    """Add a fake kernel to an operator that draws a state."""
    torch.library.register_fake(
        f"draw::{name}", lambda like, *_: like.new_empty(2, dtype=torch.int64)
    )

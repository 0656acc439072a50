"""An operator whose kernel is in Metal, for the GPU of a Mac."""

import functools
from pathlib import Path

import torch
from torch import Tensor


# [operator]
@functools.cache
def kernels():
    """Compile the source, once in a process."""
    return torch.mps.compile_shader(Path(__file__).with_name("twice.metal").read_text())


@torch.library.custom_op("twice_mps::twice", mutates_args=(), device_types="mps")
def twice(x: Tensor) -> Tensor:
    """Twice the input, computed in Metal."""
    if x.dtype != torch.float32:
        raise TypeError(f"twice: expected float32, but got {x.dtype}")
    x = x.contiguous()
    output = torch.empty_like(x)
    if x.numel():
        kernels().twice(x, output)  # a thread for each element of the first argument
    return output


@twice.register_fake
def _(x):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


# [/operator]

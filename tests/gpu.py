"""What the tests that need a GPU share."""

from collections.abc import Callable

import pytest
import torch

import opbook

# On ROCm too: its tensors are "cuda" tensors. Tests of Triton's operators also run in a
# clone that is not built, in which the library cannot be asked.
HAS_GPU = torch.cuda.is_available() and opbook.runs_on_gpu()
needs_gpu = pytest.mark.skipif(
    not HAS_GPU, reason="needs a CUDA or ROCm GPU, and a build with GPU kernels"
)


def on_a_busy_stream(function: Callable, late: torch.Tensor) -> torch.Tensor:
    """Call an operator on a side stream where its input is not there yet.

    Args:
        function: Takes one tensor. If it launches on another stream, it reads zeros.
        late: What the input holds once the stream has come to it.
    """
    input = torch.zeros_like(late, requires_grad=False)
    function(input)  # loads the kernel: a first launch waits for the whole GPU
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)  # cycles: about 0.1 s
        input.copy_(late.detach())
        output = function(input)
    side.synchronize()
    return output

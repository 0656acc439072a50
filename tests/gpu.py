"""What the tests that need a GPU share, be it an emulated one."""

from collections.abc import Callable

import pytest
import torch

import opbook
from emulated import missing_tools

# On ROCm too: its tensors are "cuda" tensors. A clone that is not built has Triton's
# operators alone, for which a GPU is enough.
HAS_GPU = torch.cuda.is_available() if opbook._not_built else opbook.runs_on_gpu()
needs_gpu = pytest.mark.needs("a GPU and a build with GPU kernels", HAS_GPU)
needs_emulator = pytest.mark.needs(f"{missing_tools()} (emulator)", not missing_tools())
needs_two_gpus = pytest.mark.needs("two GPUs", torch.cuda.device_count() > 1)


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

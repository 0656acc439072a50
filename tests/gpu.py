"""Marks of the tests that need a GPU."""

import pytest
import torch

HAS_GPU = torch.cuda.is_available()  # True on ROCm too: its tensors are "cuda" tensors
needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="needs a CUDA or ROCm GPU")

"""Fixtures for every operator's tests."""

import os

import pytest
import torch

from gpu import HAS_GPU, needs_gpu

if not HAS_GPU:
    # Triton reads it once, when it is imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_gpu)])
def device(request) -> str:
    """Every device this machine has; the others are skipped by name."""
    return request.param


@pytest.fixture(autouse=True)
def seed() -> None:
    """Make the random inputs of every test repeat."""
    torch.manual_seed(0)


@pytest.fixture
def fresh_compiler():
    """Compile again: on disk may be code that an older registration led to."""
    torch.compiler.reset()
    graphs = torch._inductor.config.patch(fx_graph_cache=False)
    with graphs, torch._functorch.config.patch(enable_autograd_cache=False):
        yield

"""Fixtures for every operator's tests."""

import pytest
import torch

from gpu import needs_gpu


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_gpu)])
def device(request) -> str:
    """Every device this machine has; the others are skipped by name."""
    return request.param


@pytest.fixture(autouse=True)
def seed() -> None:
    """Make the random inputs of every test repeat."""
    torch.manual_seed(0)

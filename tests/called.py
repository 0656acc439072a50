"""What autograd calls, and a gradient that it never gets."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Called(TorchDispatchMode):
    """Notes the name of each operator that is called in its context, backward too."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


class NoGradient(torch.autograd.Function):
    """Passes its input on, and has no gradient for it."""

    @staticmethod
    def forward(ctx, input):
        return input.clone()

    @staticmethod
    def backward(ctx, grad):
        return None

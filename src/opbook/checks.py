"""Checks of arguments that the operators in C++ and those in Triton share."""

import numbers

import torch
from torch import Tensor

from opbook.forward_mode import has_tangent

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def needs_grad(*tensors: Tensor | None) -> bool:
    """Whether autograd has to see a call with these tensors."""
    return torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in tensors
    )


def is_number(value) -> bool:
    """Tensors of one number count, but none whose gradient or other half is lost."""
    if isinstance(value, Tensor):
        lost = value.requires_grad or has_tangent(value) or value.is_complex()
        return value.dim() == 0 and not lost
    return isinstance(value, numbers.Real | torch.SymFloat | torch.SymInt)


def check_strided(op: str, name: str, tensor: Tensor) -> None:
    """Refuse a tensor whose elements do not lie a stride apart.

    PyTorch would refuse it too, without the argument's name. But a jagged tensor's own
    operators are found by a part of their names, so that ``opbook::rms_norm`` is taken
    for ``aten::rms_norm`` and fails on arguments that it does not have.

    Raises:
        NotImplementedError: It is sparse, jagged or of another such layout.
    """
    if tensor.layout is not torch.strided or tensor.is_nested:
        what = "nested" if tensor.is_nested else str(tensor.layout)
        raise NotImplementedError(f"{op}: {name} must be strided, but is {what}")

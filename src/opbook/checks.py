"""Checks of arguments that the operators in C++ and those in Triton share."""

import numbers

import torch
from torch import Tensor

from opbook.forward_mode import has_tangent

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def needs_grad(*tensors: Tensor | None) -> bool:
    """Whether autograd has to see a call with these tensors."""
    if torch.is_grad_enabled():
        for tensor in tensors:  # any() and a generator take three times as long
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def is_number(value) -> bool:
    """Tensors of one number count, but none whose gradient or other half is lost."""
    if isinstance(value, Tensor):
        lost = value.requires_grad or has_tangent(value) or value.is_complex()
        return value.dim() == 0 and not lost
    return isinstance(value, numbers.Real | torch.SymFloat | torch.SymInt)


def accumulate_dtype(input: Tensor) -> torch.dtype:
    """The type that sums run in."""
    return torch.float64 if input.dtype == torch.float64 else torch.float32


def check_tensor(op: str, name: str, value, *, optional: bool = False) -> None:
    """Raise the kind of error eager raises, which C++ behind a stable ABI cannot.

    Raises:
        TypeError: It is no tensor.
    """
    if not (isinstance(value, Tensor) or (optional and value is None)):
        expected = "a Tensor or None" if optional else "a Tensor"
        raise TypeError(
            f"{op}: {name} must be {expected}, but got {type(value).__name__}"
        )


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

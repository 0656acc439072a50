"""add_one: interface, fake kernel and gradient of ``torch.ops.opbook.add_one``."""

import torch
from torch import Tensor

from opbook.checks import FLOATING, check_strided, check_tensor
from opbook.forward_mode import register_autograd


def add_one(input: Tensor) -> Tensor:
    """Add one to every element: ``input + 1``.

    Args:
        input: Any shape, any strides; fp16, bf16, fp32 or fp64. Integers, booleans and
            complex numbers take PyTorch's own path, with its type promotion.

    Returns:
        A new tensor with the dtype of ``input + 1``, and with its strides too unless a
        dimension has size 0 or 1.

    Raises:
        TypeError: ``input`` is not a tensor.
        NotImplementedError: ``input`` is sparse or nested, and floating-point. For
            other dtypes, PyTorch's own addition raises.

    Example:
        >>> opbook.add_one(torch.tensor([1.0, 2.5]))
        tensor([2.0000, 3.5000])
    """
    check_tensor("opbook.add_one", "input", input)
    if input.dtype not in FLOATING:
        return input + 1
    check_strided("opbook.add_one", "input", input)
    return _call_add_one(input)


@torch.library.register_fake("opbook::add_one")
def _(input: Tensor) -> Tensor:
    return torch.empty_like(input)


# [autograd]
def _backward(ctx, grad: Tensor) -> Tensor:
    return grad


_call_add_one = register_autograd("opbook::add_one", _backward)
# [/autograd]

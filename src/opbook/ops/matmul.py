"""matmul: interface, fake kernel and gradient of ``torch.ops.opbook.matmul``."""

from collections.abc import Callable

import torch
from torch import Tensor

from opbook.checks import FLOATING, check_strided, check_tensor
from opbook.forward_mode import register_autograd


# [interface]
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """Multiply two matrices, as :func:`torch.mm`: no batches, no vectors.

    Sums run in fp32 for fp16, bf16 and fp32, and in fp64 for fp64. Autocast has no rule
    for this operator, so it does not change the dtypes.

    Args:
        input: Shape ``[n, k]``, any strides; fp16, bf16, fp32 or fp64. Other dtypes go
            to :func:`torch.mm`, whose errors you then get.
        other: Shape ``[k, m]``, any strides, the dtype and device of ``input``.

    Returns:
        A contiguous tensor of shape ``[n, m]`` and ``input``'s dtype.

    Raises:
        TypeError: ``input`` or ``other`` is not a tensor.
        NotImplementedError: ``input`` or ``other`` is sparse or nested.
        RuntimeError: The shapes, dtypes or devices do not fit.

    Example:
        >>> opbook.matmul(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0], [4.0]]))
        tensor([[11.]])
    """
    for name, argument in (("input", input), ("other", other)):
        check_tensor("opbook.matmul", name, argument)
    if input.dtype not in FLOATING:
        return torch.mm(input, other)
    check_strided("opbook.matmul", "input", input)
    check_strided("opbook.matmul", "other", other)
    return _call_matmul(input, other)


# [/interface]


def _fake(input: Tensor, other: Tensor) -> Tensor:
    torch._check(
        input.dim() == 2 and other.dim() == 2,
        lambda: (
            "opbook::matmul: expected input and other to be matrices, "
            f"but got shapes {list(input.shape)} and {list(other.shape)}"
        ),
    )
    torch._check(
        input.shape[1] == other.shape[0],
        lambda: (
            f"opbook::matmul: expected other with {input.shape[1]} rows, as many as "
            f"input of shape {list(input.shape)} has columns, "
            f"but got shape {list(other.shape)}"
        ),
    )
    torch._check(
        input.dtype == other.dtype,
        lambda: (
            f"opbook::matmul: expected other with input's dtype {input.dtype}, "
            f"but got {other.dtype}"
        ),
    )
    torch._check(
        input.device == other.device,
        lambda: (
            f"opbook::matmul: expected other on the device of input ({input.device}), "
            f"but got {other.device}"
        ),
    )
    return input.new_empty(input.shape[0], other.shape[1])


def _setup_context(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Two products again, so autograd can differentiate them once more."""
    input, other = ctx.saved_tensors
    need_input, need_other = ctx.needs_input_grad
    return (
        _call_matmul(grad, other.t()) if need_input else None,
        _call_matmul(input.t(), grad) if need_other else None,
    )


def _register(name: str) -> Callable:
    torch.library.register_fake(name, _fake)
    return register_autograd(name, _backward, setup_context=_setup_context)


_call_matmul = _register("opbook::matmul")
_register("opbook::matmul_naive")

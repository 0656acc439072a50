"""Interface, fake kernels and autograd of softcap."""

import torch
from torch import Tensor

from opbook.checks import FLOATING, check_strided, check_tensor, is_number
from opbook.forward_mode import register_autograd


def softcap(input: Tensor, cap: float) -> Tensor:
    r"""Keep every element between ``-cap`` and ``cap``.

    .. math:: y = c \tanh(x / c)

    Args:
        input: Any shape, any strides; fp16, bf16, fp32 or fp64 (tensors of other dtypes
            take PyTorch's own path).
        cap: A positive number.

    Returns:
        A contiguous tensor of ``input``'s shape and dtype, computed in fp32 or fp64.

    Raises:
        TypeError: ``input`` is not a tensor, or ``cap`` is not a real number.
        NotImplementedError: ``input`` is sparse or nested.
        RuntimeError: ``cap`` is not positive.

    Example:
        >>> opbook.softcap(torch.tensor([1.0, 100.0]), 2.0)
        tensor([0.9242, 2.0000])
    """
    check_tensor("opbook.softcap", "input", input)
    if not is_number(cap):
        kind = type(cap).__name__
        raise TypeError(f"opbook.softcap: cap must be a real number, but got {kind}")
    if input.dtype not in FLOATING:
        return composite(input, cap)
    check_strided("opbook.softcap", "input", input)
    return _call_softcap(input, cap)


def composite(input: Tensor, cap: float) -> Tensor:
    """The formula in PyTorch's own operators, which have all derivatives."""
    wide = input.to(torch.promote_types(input.dtype, torch.float32))
    output = cap * torch.tanh(wide / cap)
    return output.to(input.dtype) if input.is_floating_point() else output


@torch.library.register_fake("opbook::softcap")
def _(input: Tensor, cap: float) -> Tensor:
    """Shape, dtype, device and strides of the result, and the real kernel's errors."""
    name = "opbook::softcap"
    torch._check(cap > 0, lambda: f"{name}: expected cap to be positive, but got {cap}")
    return input.new_empty(input.shape)


@torch.library.register_fake("opbook::softcap_backward")
def _(grad: Tensor, input: Tensor, cap: float) -> Tensor:
    return input.new_empty(input.shape)


def _save_input(ctx, inputs, output) -> None:
    input, ctx.cap = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(input)


def _backward(ctx, grad):
    (input,) = ctx.saved_tensors
    if grad is None:
        return None, None
    if torch.is_grad_enabled():  # create_graph=True: the gradient needs a gradient
        input = input.view_as(input)  # the gradient of what made it is not ours
        output = composite(input, ctx.cap)
        return *torch.autograd.grad(output, input, grad, create_graph=True), None
    return _call_backward(grad, input, ctx.cap), None


def _refuse(ctx, *grads):
    raise NotImplementedError(
        "opbook::softcap_backward has no gradient of its own: differentiate "
        "opbook.softcap with create_graph=True"
    )


_call_softcap = register_autograd(
    "opbook::softcap", _backward, setup_context=_save_input
)
_call_backward = register_autograd("opbook::softcap_backward", _refuse)

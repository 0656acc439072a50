"""An addition and RMSNorm: ``torch.ops.opbook.add_rms_norm`` and its gradient."""

import torch
from torch import Tensor

from opbook.checks import accumulate_dtype, check_strided, check_tensor, needs_grad
from opbook.forward_mode import register_autograd
from opbook.ops.rms_norm import (
    call_backward,
    check_kinds,
    check_shapes,
    differentiable_gradients,
    rms_norm,
)


def add_rms_norm(
    input: Tensor,
    residual: Tensor,
    weight: Tensor | None = None,
    eps: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Add two tensors and normalize the sum; return both results.

    The same as ``sum = input + residual`` and ``output = rms_norm(sum, weight, eps)``.
    On a GPU one kernel does both, and does not read the sum from memory again unless a
    row is too long for its registers. The sum is rounded to the dtype before it is
    normalized, as eager rounds it.

    Args:
        input: As in :func:`rms_norm`.
        residual: Shape, dtype and device of ``input``, any strides. It is neither
            broadcast nor promoted: pass ``residual.expand_as(input)``.
        weight: As in :func:`rms_norm`.
        eps: As in :func:`rms_norm`.

    Returns:
        ``output`` and ``sum``, contiguous tensors of ``input``'s shape and dtype.

    Raises:
        TypeError: ``input``, ``residual`` or ``weight`` is not a tensor, or ``eps`` not
            a real number.
        NotImplementedError: The dtype of ``input`` has no kernel, or a tensor is sparse
            or nested.
        RuntimeError: ``input`` has no dimension, or ``residual`` or ``weight`` does not
            fit it.

    Note:
        Its bits are as in :func:`rms_norm`.

    Example:
        >>> opbook.add_rms_norm(torch.tensor([1.0, 1.0]), torch.tensor([2.0, 3.0]))
        (tensor([0.8485, 1.1314]), tensor([3., 4.]))
    """
    check_kinds(input, weight, eps, "opbook.add_rms_norm")
    check_tensor("opbook.add_rms_norm", "residual", residual)
    if input.is_complex():
        _check_residual(input, residual)
        sum = (input + residual).contiguous()
        return rms_norm(sum, weight, eps), sum
    check_strided("opbook.add_rms_norm", "residual", residual)
    if needs_grad(input, residual, weight):
        return _call_forward(input, residual, weight, eps)[:2]
    return _call_add_rms_norm(input, residual, weight, eps)


def _check_residual(input: Tensor, residual: Tensor) -> None:
    op = "opbook::add_rms_norm"

    def shape_and_dtype() -> str:
        return (
            f"{op}: expected residual with input's shape {list(input.shape)} and dtype "
            f"{input.dtype}, but got {list(residual.shape)} and {residual.dtype}"
        )

    same = residual.dim() == input.dim() and residual.dtype == input.dtype
    torch._check(same, shape_and_dtype)
    # One by one: sizes that depend on data are compared when the program runs.
    for size, expected in zip(residual.shape, input.shape, strict=True):
        torch._check(size == expected, shape_and_dtype)
    torch._check(
        residual.device == input.device,
        lambda: (
            f"{op}: expected residual on the device of input ({input.device}), "
            f"but got {residual.device}"
        ),
    )


@torch.library.register_fake("opbook::add_rms_norm")
def _(input, residual, weight=None, eps=None):
    check_shapes(input, weight, "opbook::add_rms_norm")
    _check_residual(input, residual)
    return input.new_empty(input.shape), input.new_empty(input.shape)


@torch.library.register_fake("opbook::add_rms_norm_forward")
def _(input, residual, weight=None, eps=None):
    output, sum = torch.ops.opbook.add_rms_norm(input, residual, weight, eps)
    rrms = input.new_empty(input.shape[:-1], dtype=accumulate_dtype(input))
    return output, sum, rrms


# [autograd]
def _setup_forward(ctx, inputs, output):
    _, _, weight, ctx.eps = inputs
    _, sum, rrms = output
    ctx.mark_non_differentiable(rrms, *_without_gradient(ctx, sum))
    ctx.set_materialize_grads(False)  # an output that nobody used has no gradient
    ctx.save_for_backward(sum, weight, rrms)


def _without_gradient(ctx, sum):
    """The sum does not depend on the weight, so it may have no gradient."""
    return () if any(ctx.needs_input_grad[:2]) else (sum,)


def _backward_forward(ctx, grad_output, grad_sum, _):
    return _gradients(ctx, grad_output, grad_sum, *ctx.saved_tensors)


def _gradients(ctx, grad_output, grad_sum, sum, weight, rrms):
    """Both inputs have the gradient of the sum."""
    if grad_output is None:
        return grad_sum, grad_sum, None, None
    need_input, need_residual, need_weight = ctx.needs_input_grad[:3]
    needed = need_input or need_residual, need_weight
    if torch.is_grad_enabled():  # create_graph=True: the gradient needs a gradient
        grad_input, grad_weight = differentiable_gradients(
            needed, grad_output, sum, weight, ctx.eps
        )
        if grad_sum is not None:
            grad_input = grad_input + grad_sum
    else:
        grad_input, grad_weight = call_backward(
            grad_output, sum, weight, rrms, *needed, grad_sum
        )
    return (
        grad_input if need_input else None,
        grad_input if need_residual else None,
        grad_weight if need_weight else None,
        None,
    )


_call_forward = register_autograd(
    "opbook::add_rms_norm_forward", _backward_forward, setup_context=_setup_forward
)
# [/autograd]


def _setup(ctx, inputs, output):
    _, _, weight, ctx.eps = inputs
    _, sum = output
    ctx.mark_non_differentiable(*_without_gradient(ctx, sum))
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(sum, weight)


def _backward(ctx, grad_output, grad_sum):
    """For callers of the operator itself: it kept no rrms, so compute it again."""
    sum, weight = ctx.saved_tensors
    with torch.no_grad():
        _, rrms = torch.ops.opbook.rms_norm_forward(sum, weight, ctx.eps)
    return _gradients(ctx, grad_output, grad_sum, sum, weight, rrms)


_call_add_rms_norm = register_autograd(
    "opbook::add_rms_norm", _backward, setup_context=_setup
)

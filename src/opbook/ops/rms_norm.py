"""RMSNorm: interface, fake kernels and autograd of ``torch.ops.opbook.rms_norm``."""

import torch
from torch import Tensor

from opbook.checks import (
    FLOATING,
    accumulate_dtype,
    check_strided,
    check_tensor,
    is_number,
    needs_grad,
)
from opbook.forward_mode import refuse_tangents, register_autograd


def rms_norm(
    input: Tensor, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    r"""Divide every row by its root mean square, then scale it.

    .. math:: y = \frac{x}{\sqrt{\frac{1}{n} \sum_{i=1}^{n} x_i^2 + \epsilon}} \cdot w

    A row is the last dimension of ``input``; ``n`` is its size. Sums run in fp32 for
    fp16, bf16 and fp32, and in fp64 for fp64. The result is rounded once. Source: Zhang
    and Sennrich, *Root Mean Square Layer Normalization* (arXiv:1910.07467), eq. 4, to
    which ``eps`` is added as in PyTorch.

    Args:
        input: Any shape with at least one dimension, any strides; fp16, bf16, fp32 or
            fp64 (complex tensors take PyTorch's own path).
        weight: Shape ``[input.shape[-1]]``, same device, any dtype that converts to a
            float, but no 8-bit float. ``None`` scales by one. The gradient of the
            weight has the dtype of the weight, whatever that of ``input``, as in eager.
        eps: Added to the mean square. ``None`` means the machine epsilon of the type
            the sums run in, as in :func:`torch.nn.functional.rms_norm`.

    Returns:
        A contiguous tensor of ``input``'s shape and dtype.

    Raises:
        TypeError: ``input`` or ``weight`` is not a tensor, or ``eps`` is not a real
            number.
        NotImplementedError: The dtype of ``input`` has no kernel, or a tensor is sparse
            or nested.
        RuntimeError: ``input`` has no dimension, or the shape, device or dtype of
            ``weight`` does not fit.

    Note:
        The same call gives the same bits, also in the gradients: a sum over the rows
        has a fixed order. On a CPU, the bits of a row do not depend on the other rows.
        On a GPU they may, because few rows take another kernel than many.

    Example:
        >>> opbook.rms_norm(torch.tensor([3.0, 4.0]), eps=0.0)
        tensor([0.8485, 1.1314])
    """
    check_kinds(input, weight, eps)
    if input.is_complex():
        return torch.nn.functional.rms_norm(input, input.shape[-1:], weight, eps)
    if needs_grad(input, weight):
        # The second output is for backward; callers never see it.
        return _call_forward(input, weight, eps)[0]
    return _call_rms_norm(input, weight, eps)


# [in_place]
def rms_norm_(
    input: Tensor, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """In-place version of :func:`rms_norm`: writes the result over ``input``.

    If no gradient is needed, and a single stride describes where the rows begin, it
    allocates no tensor of that size. For a gradient it copies ``input``, because
    backward needs the old values.

    Args:
        input: As in :func:`rms_norm`, and no two elements may share memory.
        weight: As in :func:`rms_norm`. It may not lie between the first and the last
            element of ``input``.
        eps: As in :func:`rms_norm`.

    Returns:
        ``input``.

    Raises:
        TypeError: As for :func:`rms_norm`.
        NotImplementedError: As for :func:`rms_norm`.
        RuntimeError: As for :func:`rms_norm`, and for a leaf that requires grad, an
            expanded ``input``, a ``weight`` inside ``input``, and, outside inference
            mode, an ``input`` that was made in it.
    """
    check_kinds(input, weight, eps, "opbook.rms_norm_")
    if input.is_complex():
        return input.copy_(rms_norm(input, weight, eps))
    torch.ops.opbook.rms_norm_(input, weight, eps)
    return input


# [/in_place]


def check_kinds(input, weight, eps, op: str = "opbook.rms_norm") -> None:
    """Raise the kind of error eager raises, which C++ behind a stable ABI cannot."""
    check_tensor(op, "input", input)
    check_tensor(op, "weight", weight, optional=True)
    if not (eps is None or is_number(eps)):
        raise TypeError(
            f"{op}: eps must be a real number or None, but got {type(eps).__name__}"
        )
    if not (input.dtype in FLOATING or input.dtype.is_complex):
        raise NotImplementedError(
            f"{op}: input must be fp16, bf16, fp32, fp64 or complex, "
            f"but got {input.dtype}"
        )
    if not input.dtype.is_complex:  # PyTorch's own path may have it
        check_strided(op, "input", input)
        if weight is not None:
            check_strided(op, "weight", weight)


def check_shapes(input, weight, op: str = "opbook::rms_norm") -> None:
    """Raise the real kernel's errors."""
    torch._check(
        input.dim() >= 1,
        lambda: (
            f"{op}: expected input to have at least 1 dimension, "
            f"but got shape {list(input.shape)}"
        ),
    )
    if weight is not None:

        def shape() -> str:
            return (
                f"{op}: expected weight to have the shape of input's "
                f"last dimension, [{input.shape[-1]}], but got {list(weight.shape)}"
            )

        torch._check(weight.dim() == 1, shape)
        torch._check(weight.shape[0] == input.shape[-1], shape)
        torch._check(
            weight.device == input.device,
            lambda: (
                f"{op}: expected weight on the device of input "
                f"({input.device}), but got {weight.device}"
            ),
        )
        torch._check(
            not (weight.is_floating_point() and weight.itemsize == 1),
            lambda: (
                f"{op}: weight of an 8-bit floating type can't be promoted; "
                f"got {weight.dtype}"
            ),
        )


@torch.library.register_fake("opbook::rms_norm")
def _(input: Tensor, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Shape, dtype, device and strides of the result."""
    check_shapes(input, weight)
    return input.new_empty(input.shape)


@torch.library.register_fake("opbook::rms_norm_forward")
def _(input, weight=None, eps=None):
    output = torch.ops.opbook.rms_norm(input, weight, eps)
    return output, input.new_empty(input.shape[:-1], dtype=accumulate_dtype(input))


@torch.library.register_fake("opbook::rms_norm_backward")
def _(grad, input, weight, rrms, need_input, need_weight, added=None):
    grad_input = input.new_empty(input.shape if need_input else (0,))
    if need_weight and weight is not None:
        return grad_input, weight.new_empty(weight.shape)
    same = weight is not None and weight.dtype == input.dtype
    dtype = input.dtype if same else accumulate_dtype(input)
    return grad_input, input.new_empty((0,), dtype=dtype)


@torch.library.register_fake("opbook::rms_norm_")
def _(input, weight=None, eps=None):
    check_shapes(input, weight, "opbook::rms_norm_")


# [autograd]
def _setup_forward(ctx, inputs, output):
    input, weight, ctx.eps = inputs
    _, rrms = output
    ctx.mark_non_differentiable(rrms)
    ctx.set_materialize_grads(False)  # or a kernel fills one of rrms with zeros
    ctx.save_for_backward(input, weight, rrms)


def _backward_forward(ctx, grad, _):
    return _gradients(ctx, grad, *ctx.saved_tensors)


def _gradients(ctx, grad, input, weight, rrms):
    if grad is None:
        return None, None, None
    need_input, need_weight = needed = ctx.needs_input_grad[:2]
    if torch.is_grad_enabled():  # create_graph=True: the gradient needs a gradient
        return *differentiable_gradients(needed, grad, input, weight, ctx.eps), None
    grad_input, grad_weight = call_backward(grad, input, weight, rrms, *needed, None)
    return (
        grad_input if need_input else None,
        grad_weight if need_weight else None,
        None,
    )


_call_forward = register_autograd(
    "opbook::rms_norm_forward", _backward_forward, setup_context=_setup_forward
)
# [/autograd]


def differentiable_gradients(needed, grad, input, weight, eps):
    """The same gradients, as a graph that autograd can differentiate again."""
    # Views, because one of the two may have been computed from the other, and the
    # gradient of that computation is not ours.
    input = input.view_as(input)
    weight = None if weight is None else weight.view_as(weight)
    wanted = [t for t, need in zip((input, weight), needed, strict=True) if need]
    output = _composite(input, weight, eps)
    found = iter(torch.autograd.grad(output, wanted, grad, create_graph=True))
    return tuple(next(found) if need else None for need in needed)


def _composite(input: Tensor, weight: Tensor | None, eps: float | None) -> Tensor:
    """The formula in PyTorch's own operators."""
    dtype = accumulate_dtype(input)
    wide = input.to(dtype)
    eps = torch.finfo(dtype).eps if eps is None else eps
    result = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (result if weight is None else result * weight.to(dtype)).to(input.dtype)


def _setup(ctx, inputs, output):
    input, weight, ctx.eps = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(input, weight)


def _backward(ctx, grad):
    """For callers of the operator itself: it kept no rrms, so compute it again."""
    input, weight = ctx.saved_tensors
    with torch.no_grad():
        _, rrms = torch.ops.opbook.rms_norm_forward(input, weight, ctx.eps)
    return _gradients(ctx, grad, input, weight, rrms)


def _refuse(ctx, *grads):
    raise NotImplementedError(
        "opbook::rms_norm_backward has no gradient of its own: differentiate "
        "opbook.rms_norm with create_graph=True"
    )


_call_rms_norm = register_autograd("opbook::rms_norm", _backward, setup_context=_setup)
call_backward = register_autograd("opbook::rms_norm_backward", _refuse)


# [autograd_in_place]
_library = torch.library.Library("opbook", "IMPL")


def _in_place_under_autograd(keyset, input, weight=None, eps=None):
    """Let ``copy_`` do what an in-place operator owes autograd.

    It refuses leaves that require grad and rebases views. A kernel registered for a
    mutating schema does none of this: its gradient would be silently wrong.
    """
    refuse_tangents("opbook::rms_norm_", input, weight)
    if needs_grad(input, weight):
        # Backward keeps the clone, for the input is about to change.
        input.copy_(rms_norm(input.clone(), weight, eps))
        return
    _below_autograd(keyset, input, weight, eps)  # the next row, without a dispatch


def _below_autograd(keyset, input, weight=None, eps=None):
    """Write, and tell who saved the input for backward, also in inference mode."""
    if input.is_inference() and not torch.is_inference_mode_enabled():
        raise RuntimeError(
            f"opbook::rms_norm_: input, of shape {list(input.shape)}, was made in "
            "inference mode and can be written to only there; clone() it first"
        )
    if input.is_neg() or isinstance(input.storage_offset(), torch.SymInt):
        # What PyTorch does for a negative bit needs an operator that returns its
        # input. And inductor loses an offset that is no number: pytorch#198068.
        input.copy_(rms_norm(input, weight, eps))
        return
    with torch._C._AutoDispatchBelowADInplaceOrView():
        torch.ops.opbook.rms_norm_.default.redispatch(
            keyset & torch._C._after_ADInplaceOrView_keyset, input, weight, eps
        )
    torch.autograd.graph.increment_version(input)


_library.impl("rms_norm_", _in_place_under_autograd, "Autograd", with_keyset=True)
_library.impl("rms_norm_", _below_autograd, "ADInplaceOrView", with_keyset=True)
# [/autograd_in_place]

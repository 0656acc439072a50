"""Multiply by a number: the smallest Triton operator that is complete."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from opbook.checks import check_tensor, is_number, needs_grad
from opbook.forward_mode import refuse_tangents, register_autograd
from opbook.triton.launch import (
    check_input,
    device_of,
    library,
    refuse_nested,
)
from opbook.triton.names import custom_op

BLOCK = 1024


# [kernel]
@triton.jit
def scale_kernel(input, output, factor, count, BLOCK: tl.constexpr):
    """Scale `BLOCK` elements; the last program has fewer, which the mask knows."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    x = tl.load(input + place, mask=inside).to(tl.float32)
    y = (x * factor).to(output.dtype.element_ty)
    tl.store(output + place, y, mask=inside)


# [/kernel]


def launch_scale(input: Tensor, output: Tensor, factor: float) -> None:
    """Launch one program a block, and none on an empty tensor."""
    count = input.numel()
    if count > 0:
        with device_of(input):
            scale_kernel[(triton.cdiv(count, BLOCK),)](
                input, output, factor, count, BLOCK=BLOCK
            )


def scale(input: Tensor, factor: float) -> Tensor:
    """Multiply every element by a number.

    Args:
        input: Any shape and strides; fp16, bf16 or fp32.
        factor: Rounded to fp32, the type of the product.

    Returns:
        A contiguous tensor of ``input``'s shape and dtype.

    Raises:
        TypeError: ``factor`` is not a real number, or is a tensor that requires grad.
        NotImplementedError: Another dtype, a sparse or nested tensor, or forward mode.
        RuntimeError: A device that Triton does not run on here.
    """
    _check_factor("opbook.triton.scale", factor)
    return _scale(input, factor)


@custom_op("opbook_triton::scale", mutates_args=())
def _scale(input: Tensor, factor: float) -> Tensor:
    check_input("opbook.triton.scale", "input", input)
    input = input.contiguous()
    output = torch.empty_like(input)
    launch_scale(input, output, factor)
    return output


def _check_factor(op: str, factor: float) -> None:
    """Refuse a tensor that PyTorch would turn into a number, and lose its gradient."""
    if not is_number(factor):
        raise TypeError(
            f"{op}: factor must be a real number, or a tensor of one that requires no "
            f"gradient, but got {type(factor).__name__}"
        )


refuse_nested(_scale)


# [fake]
@_scale.register_fake
def _(input: Tensor, factor: float) -> Tensor:
    check_input("opbook.triton.scale", "input", input)
    return torch.empty_like(input, memory_format=torch.contiguous_format)


# [/fake]


# [autograd]
def _save(ctx, inputs, output) -> None:
    _, ctx.factor = inputs


def _backward(ctx, grad: Tensor):
    return _scale(grad, ctx.factor), None


register_autograd("opbook_triton::scale", _backward, setup_context=_save)
# [/autograd]


# [in_place]
@custom_op("opbook_triton::scale_", mutates_args=("input",))
def scale_in_place(input: Tensor, factor: float) -> None:
    """Multiply where the elements are; strided input costs a copy."""
    check_input("opbook.triton.scale_", "input", input)
    if input.is_inference() and not torch.is_inference_mode_enabled():
        raise RuntimeError(  # it counts no versions: autograd would not notice
            f"opbook.triton.scale_: input, of shape {list(input.shape)}, was made in "
            "inference mode and can be written to only there"
        )
    if input.is_contiguous():
        launch_scale(input, input, factor)
    else:
        input.copy_(_scale(input, factor))


@scale_in_place.register_fake
def _(input: Tensor, factor: float) -> None:
    check_input("opbook.triton.scale_", "input", input)


refuse_nested(scale_in_place)


def _under_autograd(keyset, input: Tensor, factor: float) -> None:
    """Let ``copy_`` do what an in-place operator owes autograd.

    It refuses leaves that require grad, and views and their bases hear of the gradient.
    Inductor loses an offset that is no number (pytorch#198068), but not of ``copy_``.
    """
    check_tensor("opbook.triton.scale_", "input", input)
    refuse_tangents("opbook_triton::scale_", input)
    if needs_grad(input) or isinstance(input.storage_offset(), torch.SymInt):
        _with_copy(input, factor)
        return
    with torch._C._AutoDispatchBelowAutograd():
        torch.ops.opbook_triton.scale_.default.redispatch(
            keyset & torch._C._after_autograd_keyset, input, factor
        )


def _with_copy(input: Tensor, factor: float) -> None:
    input.copy_(_scale(input, factor))


library.impl(
    "scale_", _under_autograd, "Autograd", with_keyset=True, allow_override=True
)
# What PyTorch does for a negative bit needs an operator that returns its input.
library.impl("scale_", _with_copy, "Negative", allow_override=True)


def scale_(input: Tensor, factor: float) -> Tensor:
    """In-place version of :func:`scale`.

    Args:
        input: As in :func:`scale`, with no two elements in the same memory.
        factor: As in :func:`scale`.

    Returns:
        ``input``.

    Raises:
        TypeError: As for :func:`scale`.
        NotImplementedError: As for :func:`scale`.
        RuntimeError: As for :func:`scale`, and for a leaf that requires grad, an
            expanded ``input``, and, outside inference mode, an ``input`` that was made
            in it.
    """
    _check_factor("opbook.triton.scale_", factor)
    scale_in_place(input, factor)
    return input


# [/in_place]

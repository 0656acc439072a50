"""Softmax over rows of any length, in two passes over memory."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from opbook.forward_mode import register_autograd
from opbook.triton.launch import (
    block_of,
    check_input,
    check_like,
    device_of,
    refuse_nested,
    rows_of,
    warps_of,
)
from opbook.triton.names import custom_op


# [kernel]
@triton.jit
def softmax_kernel(input, output, length, BLOCK: tl.constexpr):
    """Softmax of one row.

    The first loop keeps the largest value so far and the sum of exponentials relative
    to it, so a row longer than `BLOCK` is read twice and not three times (Milakov and
    Gimelshein, arXiv:1805.02867, algorithm 3).
    """
    row = tl.program_id(0).to(tl.int64) * length
    column = tl.arange(0, BLOCK)
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, length, BLOCK):
        inside = start + column < length
        x = tl.load(input + row + start + column, mask=inside, other=float("-inf"))
        x = x.to(tl.float32)
        larger = tl.maximum(largest, x)
        # A lane that has seen nothing but -inf holds no sum; exp(-inf + inf) is NaN.
        shift = tl.where(larger == float("-inf"), 0.0, larger)
        total = total * tl.exp(largest - shift) + tl.exp(x - shift)
        largest = larger
    peak = tl.max(largest, axis=0)
    shift = tl.where(peak == float("-inf"), 0.0, peak)
    denominator = tl.sum(total * tl.exp(largest - shift), axis=0)
    for start in range(0, length, BLOCK):
        inside = start + column < length
        x = tl.load(input + row + start + column, mask=inside, other=float("-inf"))
        y = tl.exp(x.to(tl.float32) - peak) / denominator
        y = y.to(output.dtype.element_ty)
        tl.store(output + row + start + column, y, mask=inside)


@triton.jit
def softmax_backward_kernel(grad, output, grad_input, length, BLOCK: tl.constexpr):
    """One row of y * (g - sum(g * y))."""
    row = tl.program_id(0).to(tl.int64) * length
    column = tl.arange(0, BLOCK)
    products = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, length, BLOCK):
        inside = start + column < length
        y = tl.load(output + row + start + column, mask=inside, other=0.0)
        g = tl.load(grad + row + start + column, mask=inside, other=0.0)
        products += y.to(tl.float32) * g.to(tl.float32)
    dot = tl.sum(products, axis=0)
    for start in range(0, length, BLOCK):
        inside = start + column < length
        y = tl.load(output + row + start + column, mask=inside, other=0.0)
        g = tl.load(grad + row + start + column, mask=inside, other=0.0)
        x = y.to(tl.float32) * (g.to(tl.float32) - dot)
        x = x.to(grad_input.dtype.element_ty)
        tl.store(grad_input + row + start + column, x, mask=inside)


# [/kernel]


@custom_op("opbook_triton::softmax", mutates_args=())
def softmax(input: Tensor) -> Tensor:
    r"""Softmax over the last dimension.

    .. math:: y_i = \frac{e^{x_i - \max x}}{\sum_j e^{x_j - \max x}}

    Source of the kernel, which reads a row twice: Milakov and Gimelshein, *Online
    normalizer calculation for softmax* (arXiv:1805.02867), algorithm 3.

    Args:
        input: At least one dimension, any strides; fp16, bf16 or fp32.

    Returns:
        A contiguous tensor of ``input``'s shape and dtype. Sums run in fp32.

    Raises:
        NotImplementedError: Another dtype, a sparse or nested tensor, or forward mode.
        RuntimeError: No dimension, or a device that Triton does not run on here.
    """
    _check(input)
    input = input.contiguous()
    output = torch.empty_like(input)
    rows, length = rows_of(input)
    if rows > 0:
        block = block_of(length)
        with device_of(input):
            softmax_kernel[(rows,)](
                input, output, length, BLOCK=block, num_warps=warps_of(block)
            )
    return output


def _check(input: Tensor) -> None:
    op = "opbook.triton.softmax"
    check_input(op, "input", input)
    torch._check(
        input.dim() >= 1,
        lambda: f"{op}: expected input to have at least 1 dimension, but got shape []",
    )


refuse_nested(softmax)


@softmax.register_fake
def _(input: Tensor) -> Tensor:
    _check(input)
    return torch.empty_like(input, memory_format=torch.contiguous_format)


@custom_op("opbook_triton::softmax_backward", mutates_args=())
def softmax_backward(grad: Tensor, output: Tensor) -> Tensor:
    """Gradient of :func:`softmax` by its input; reads its output, not its input."""
    _check_backward(grad, output)
    grad, output = grad.contiguous(), output.contiguous()
    grad_input = torch.empty_like(output)
    rows, length = rows_of(output)
    if rows > 0:
        block = block_of(length)
        with device_of(output):
            softmax_backward_kernel[(rows,)](
                grad, output, grad_input, length, BLOCK=block, num_warps=warps_of(block)
            )
    return grad_input


def _check_backward(grad: Tensor, output: Tensor) -> None:
    op = "opbook_triton::softmax_backward"
    check_input(op, "output", output)
    check_like(op, "grad", grad, output, output.shape, output.dtype)


refuse_nested(softmax_backward)
register_autograd("opbook_triton::softmax_backward", None)


@softmax_backward.register_fake
def _(grad: Tensor, output: Tensor) -> Tensor:
    _check_backward(grad, output)
    return torch.empty_like(output, memory_format=torch.contiguous_format)


# [autograd]
def _save(ctx, inputs, output) -> None:
    ctx.save_for_backward(output)


def _backward(ctx, grad: Tensor) -> Tensor:
    return softmax_backward(grad, *ctx.saved_tensors)


register_autograd("opbook_triton::softmax", _backward, setup_context=_save)
# [/autograd]

"""RMSNorm in Triton: forward, and both gradients with no atomic addition."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from opbook.triton.launch import (
    block_of,
    check_input,
    check_like,
    device_of,
    rows_of,
    warps_of,
)

OP = "opbook.triton.rms_norm"
# Programs that add up the weight's gradient: enough to fill a GPU, few enough that
# adding their partial sums costs little.
MAX_CHUNKS = 256


# [forward]
@triton.jit
def rms_norm_kernel(
    input, weight, output, rrms, hidden, eps,
    HAS_WEIGHT: tl.constexpr, ONE_BLOCK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row: y = x * rrms * w, and rrms = 1 / sqrt(mean(x^2) + eps) for backward."""
    row = tl.program_id(0).to(tl.int64)
    input += row * hidden
    output += row * hidden
    column = tl.arange(0, BLOCK)
    if ONE_BLOCK:  # the row stays in registers
        inside = column < hidden
        x = tl.load(input + column, mask=inside, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(x * x, axis=0) / hidden + eps)
        y = x * scale
        if HAS_WEIGHT:
            y *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(output + column, y.to(output.dtype.element_ty), mask=inside)
    else:
        squares = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, hidden, BLOCK):
            inside = start + column < hidden
            x = tl.load(input + start + column, mask=inside, other=0.0).to(tl.float32)
            squares += x * x
        scale = tl.rsqrt(tl.sum(squares, axis=0) / hidden + eps)
        for start in range(0, hidden, BLOCK):
            place = start + column
            inside = place < hidden
            y = tl.load(input + place, mask=inside, other=0.0).to(tl.float32) * scale
            if HAS_WEIGHT:
                y *= tl.load(weight + place, mask=inside, other=0.0).to(tl.float32)
            tl.store(output + place, y.to(output.dtype.element_ty), mask=inside)
    tl.store(rrms + row, scale)


# [/forward]


# [backward]
@triton.jit
def rms_norm_backward_kernel(
    grad, input, weight, rrms, grad_input, partial, rows, hidden, rows_per_chunk,
    HAS_WEIGHT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Some rows of the input's gradient, and their sum for the weight's gradient.

    dx = r * (g * w - x * r^2 * mean(g * w * x)) and dw = sum over rows of g * x * r.
    Each program has a row of `partial` of its own: no atomics, so two runs agree.
    """
    chunk = tl.program_id(0).to(tl.int64)
    first = chunk * rows_per_chunk
    last = tl.minimum(first + rows_per_chunk, rows)
    column = tl.arange(0, BLOCK)
    for row in range(first, last):
        scale = tl.load(rrms + row)
        place = row * hidden
        products = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, hidden, BLOCK):
            inside = start + column < hidden
            x = tl.load(input + place + start + column, mask=inside, other=0.0)
            g = tl.load(grad + place + start + column, mask=inside, other=0.0)
            g = g.to(tl.float32)
            if HAS_WEIGHT:
                w = tl.load(weight + start + column, mask=inside, other=0.0)
                g *= w.to(tl.float32)
            products += g * x.to(tl.float32)
        mean = tl.sum(products, axis=0) / hidden * scale * scale
        for start in range(0, hidden, BLOCK):
            inside = start + column < hidden
            x = tl.load(input + place + start + column, mask=inside, other=0.0)
            g = tl.load(grad + place + start + column, mask=inside, other=0.0)
            x, g = x.to(tl.float32), g.to(tl.float32)
            if HAS_WEIGHT:
                sums = partial + chunk * hidden + start + column
                before = tl.load(sums, mask=inside, other=0.0)
                tl.store(sums, before + g * x * scale, mask=inside)
                w = tl.load(weight + start + column, mask=inside, other=0.0)
                g *= w.to(tl.float32)
            dx = (scale * (g - x * mean)).to(grad_input.dtype.element_ty)
            tl.store(grad_input + place + start + column, dx, mask=inside)
        tl.debug_barrier()  # another thread may read `partial` for the next row


# [/backward]


# [operator]
def rms_norm(input: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """Divide every row by its root mean square, then scale it.

    The formula is that of :func:`opbook.rms_norm`.

    Args:
        input: Shape ``[..., hidden]``, any strides; fp16, bf16 or fp32.
        weight: Shape ``[hidden]``, a dtype of the same list. ``None`` scales by one.
        eps: Added to the mean square.

    Returns:
        A contiguous tensor of ``input``'s shape and dtype. Sums run in fp32.

    Raises:
        NotImplementedError: Another dtype.
        RuntimeError: A shape or a device does not fit.
    """
    return rms_norm_forward(input, weight, eps)[0]


@torch.library.custom_op("opbook_triton::rms_norm_forward", mutates_args=())
def rms_norm_forward(
    input: Tensor, weight: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """Compute :func:`rms_norm`, and the fp32 ``rrms`` of each row for backward."""
    _check(input, weight)
    input = input.contiguous()
    output = torch.empty_like(input)
    rrms = input.new_empty(input.shape[:-1], dtype=torch.float32)
    rows, hidden = rows_of(input)
    if rows > 0:
        block = block_of(hidden)
        with device_of(input):
            rms_norm_kernel[(rows,)](
                input, _contiguous(weight), output, rrms, hidden, eps,
                HAS_WEIGHT=weight is not None, ONE_BLOCK=hidden <= block, BLOCK=block,
                num_warps=warps_of(block),
            )  # fmt: skip
    return output, rrms


# [/operator]


def _contiguous(weight: Tensor | None) -> Tensor | None:
    return None if weight is None else weight.contiguous()


def _check(input: Tensor, weight: Tensor | None) -> None:
    check_input(OP, "input", input)
    torch._check(
        input.dim() >= 1,
        lambda: f"{OP}: expected input to have at least 1 dimension, but got shape []",
    )
    if weight is not None:
        check_input(OP, "weight", weight)
        check_like(OP, "weight", weight, input, input.shape[-1:])


@rms_norm_forward.register_fake
def _(input, weight, eps):
    _check(input, weight)
    output = torch.empty_like(input, memory_format=torch.contiguous_format)
    return output, input.new_empty(input.shape[:-1], dtype=torch.float32)


@torch.library.custom_op("opbook_triton::rms_norm_backward", mutates_args=())
def rms_norm_backward(
    grad: Tensor, input: Tensor, weight: Tensor | None, rrms: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of :func:`rms_norm` by input and, in fp32, by weight (or empty)."""
    grad, input = grad.contiguous(), input.contiguous()
    grad_input = torch.empty_like(input)
    rows, hidden = rows_of(input)
    per_chunk = triton.cdiv(max(rows, 1), MAX_CHUNKS)
    chunks = triton.cdiv(rows, per_chunk)
    shape = (chunks, hidden) if weight is not None else (0,)
    partial = torch.zeros(shape, dtype=torch.float32, device=input.device)
    if rows > 0:
        block = block_of(hidden)
        with device_of(input):
            rms_norm_backward_kernel[(chunks,)](
                grad, input, _contiguous(weight), rrms, grad_input, partial,
                rows, hidden, per_chunk,
                HAS_WEIGHT=weight is not None, BLOCK=block, num_warps=warps_of(block),
            )  # fmt: skip
    return grad_input, partial.sum(0) if weight is not None else partial


@rms_norm_backward.register_fake
def _(grad, input, weight, rrms):
    grad_input = torch.empty_like(input, memory_format=torch.contiguous_format)
    shape = (0,) if weight is None else weight.shape
    return grad_input, input.new_empty(shape, dtype=torch.float32)


# [autograd]
def _save(ctx, inputs, output) -> None:
    input, weight, _ = inputs
    _, rrms = output
    ctx.mark_non_differentiable(rrms)
    ctx.set_materialize_grads(False)  # or a kernel fills one of rrms with zeros
    ctx.save_for_backward(input, weight, rrms)


def _backward(ctx, grad: Tensor | None, _):
    if grad is None:
        return None, None, None
    input, weight, rrms = ctx.saved_tensors
    grad_input, grad_weight = rms_norm_backward(grad, input, weight, rrms)
    return grad_input, None if weight is None else grad_weight.to(weight.dtype), None


rms_norm_forward.register_autograd(_backward, setup_context=_save)
# [/autograd]

"""softmax_lse in Triton: formula, kernels, operator and gradient."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from starter.forward_mode import refuse_forward_mode

MOST = 4096  # elements that a program reads at once; a longer row takes several turns
INTERPRETED = triton.knobs.runtime.interpret  # TRITON_INTERPRET=1: runs on the CPU


def softmax_lse(
    scores: Tensor, mask: Tensor | None = None, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Compute ``softmax(scale * scores)`` of each row, and ``logsumexp`` of the same.

    A row is what lies along the last dimension. Where the mask is False, the score
    counts as minus infinity. In a row in which all do, the probabilities are 0, the
    logarithm is minus infinity, and the gradient is 0.

    Args:
        scores: Any strides, and 1 dimension or more; fp16, bf16, fp32 or fp64.
        mask: Of dtype bool, and any shape that broadcasts to that of the scores. It is
            copied if its rows are not equally far apart.
        scale: A number that is finite in fp32. Triton compiles a kernel for each value.

    Returns:
        Both contiguous: the probabilities, like the scores, and one logarithm for each
        row, in fp32, or in fp64 for fp64.

    Raises:
        RuntimeError: The mask does not broadcast, devices differ, Triton does not run
            on the device, or a dtype or the scale is not one of these.
        NotImplementedError: In forward-mode differentiation.
    """
    return torch.ops.starter.softmax_lse(scores, mask, scale)


@triton.jit
def load(place, mask):
    """Load elements in the type to compute in, 0 where the mask is False."""
    x = tl.load(place, mask=mask, other=0.0)
    return x if x.dtype == tl.float64 else x.to(tl.float32)


# [math] of one row: for the kernels, and of the gradient in PyTorch's operators
@triton.jit
def softmax_lse_load(row, mask, m_column, column, columns, SCALE: tl.constexpr):
    """Load scores, those that are masked as minus infinity."""
    kept = column < columns
    x = load(row + column, kept) * SCALE
    if mask is not None:
        kept = kept & (tl.load(mask + column * m_column, mask=kept, other=0) != 0)
    return tl.where(kept, x, float("-inf"))


@triton.jit
def softmax_lse_kernel(
    scores, s_stride, mask, m_stride, m_column, probs, lse, columns,
    SCALE: tl.constexpr, LARGEST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute one row, in turns of BLOCK columns."""
    row = tl.program_id(0).to(tl.int64)
    scores += row * s_stride
    if mask is not None:
        mask += row * m_stride
    # `largest` stays finite. Of infinity, the sum becomes infinite, and of NaN, NaN.
    most = tl.full([], LARGEST, lse.dtype.element_ty)
    largest, total = -most, most * 0
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK).to(tl.int64)
        x = softmax_lse_load(scores, mask, m_column, column, columns, SCALE)
        new = tl.max(tl.where(x > largest, x, largest), 0)
        new = tl.where(new > most, most, new)
        total = total * tl.exp(largest - new) + tl.sum(tl.exp(x - new), 0)
        largest = new
    # 0 if all is masked; and NaN if the sum is infinite, as inf - inf.
    factor = tl.where(total == 0, 0.0, (1 + (total - total)) / total)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK).to(tl.int64)
        x = softmax_lse_load(scores, mask, m_column, column, columns, SCALE)
        p = tl.exp(x - largest) * factor
        tl.store(probs + row * columns + column, p, mask=column < columns)
    tl.store(lse + row, largest + tl.log(total))


@triton.jit
def softmax_lse_product(grad, prob):
    """Multiply; a probability of 0 passes nothing on, even of infinity."""
    return tl.where(prob == 0, 0.0, grad * prob)


@triton.jit
def softmax_lse_backward_kernel(
    grad_probs, g_stride, grad_lse, probs, p_stride, result, columns,
    SCALE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of one row."""
    row = tl.program_id(0).to(tl.int64)
    probs += row * p_stride
    same = load(probs, False) * 0  # 0 in the type to compute in
    if grad_lse is not None:
        same += tl.load(grad_lse + row)
    if grad_probs is not None:
        grad_probs += row * g_stride
        for start in range(0, columns, BLOCK):
            column = start + tl.arange(0, BLOCK).to(tl.int64)
            d = load(grad_probs + column, column < columns)
            p = load(probs + column, column < columns)
            same -= tl.sum(softmax_lse_product(d, p), 0)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK).to(tl.int64)
        p = load(probs + column, column < columns)
        arrived = p * 0 + same
        if grad_probs is not None:
            arrived += load(grad_probs + column, column < columns)
        x = softmax_lse_product(arrived, p) * SCALE
        tl.store(result + row * columns + column, x, mask=column < columns)


def gradient(
    grad_probs: Tensor | None, grad_lse: Tensor | None, probs: Tensor, scale: float
) -> Tensor:
    """Compute the gradient in PyTorch's operators, which have all derivatives."""
    p = probs.to(torch.promote_types(probs.dtype, torch.float32))
    arrived = torch.zeros_like(p)
    if grad_probs is not None:
        d = grad_probs.to(p.dtype).masked_fill(p == 0, 0)
        arrived = d - (d * p).sum(-1, keepdim=True)
    if grad_lse is not None:
        arrived = arrived + grad_lse.unsqueeze(-1)
    return (scale * arrived.masked_fill(p == 0, 0) * p).to(probs.dtype)


# [/math]


def _expect(is_right, what: str, it) -> None:
    # While torch.compile traces sizes that depend on data, it is asked later.
    words = f"starter::softmax_lse: expected {what}, but got {it}"
    torch._check(is_right, lambda: words)


def _check(name: str, x: Tensor, scale: float) -> None:
    floating = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    _expect(x.dtype in floating, f"{name} of fp16, bf16, fp32 or fp64", x.dtype)
    _expect(x.dim() > 0, f"{name} with 1 dimension or more", "none")
    _expect(INTERPRETED or not x.is_cpu, f"{name} on a GPU", x.device)
    _expect(abs(scale) < 2**128, "scale to be finite in fp32", scale)


def _check_like(name: str, x: Tensor | None, like: Tensor, dtype, broadcasts=False):
    """Check an argument that may be None: has it the shape, or broadcasts to it?"""
    if x is None:
        return
    relation = "that broadcasts to" if broadcasts else "of"
    shapes = f"{name} {relation} shape {[*like.shape]}", [*x.shape]
    _expect(x.dim() == like.dim() or (broadcasts and x.dim() < like.dim()), *shapes)
    for a, b in zip(reversed(x.shape), reversed(like.shape), strict=False):
        _expect((a == 1) | (a == b) if broadcasts else a == b, *shapes)
    _expect(x.dtype == dtype, f"{name} of dtype {dtype}", x.dtype)
    _expect(x.device == like.device, f"{name} on {like.device}", x.device)


def _new_results(scores: Tensor) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(scores.dtype, torch.float32)
    lse = scores.new_empty(scores.shape[:-1], dtype=wide)
    return scores.new_empty(scores.shape), lse


def _rows(x: Tensor, rows: int) -> tuple[Tensor, int]:
    """Return rows whose elements lie side by side, if need be a copy, and a stride."""
    x = x.reshape(rows, x.shape[-1])
    x = x if x.stride(1) == 1 else x.contiguous()
    return x, x.stride(0)


def _launch(kernel, rows: int, columns: int, scale: float, *arguments, **more) -> None:
    block = min(triton.next_power_of_2(max(columns, 1)), MOST)
    more |= {"BLOCK": block, "num_warps": max(1, min(block // 512, 8))}
    with torch.cuda.device_of(arguments[-1]):
        kernel[(rows,)](*arguments, columns, SCALE=scale, **more)


@torch.library.custom_op("starter::softmax_lse", mutates_args=())
def _softmax_lse(
    scores: Tensor, mask: Tensor | None = None, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    _check("scores", scores, scale)
    _check_like("mask", mask, scores, torch.bool, broadcasts=True)
    probs, lse = _new_results(scores)
    rows, columns, kept = lse.numel(), scores.shape[-1], (None, 0, 0)
    if rows == 0:
        return probs, lse
    if mask is not None:  # a bool is read as a byte
        mask = mask.expand(scores.shape).reshape(rows, columns).view(torch.uint8)
        kept = mask, *mask.stride()
    arguments = *_rows(scores, rows), *kept, probs, lse
    largest = torch.finfo(lse.dtype).max
    _launch(softmax_lse_kernel, rows, columns, scale, *arguments, LARGEST=largest)
    return probs, lse


@torch.library.custom_op("starter::softmax_lse_backward", mutates_args=())
def _softmax_lse_backward(
    grad_probs: Tensor | None, grad_lse: Tensor | None, probs: Tensor, scale: float
) -> Tensor:
    _check("probs", probs, scale)
    grad_scores, like_lse = _new_results(probs)
    _check_like("grad_probs", grad_probs, probs, probs.dtype)
    _check_like("grad_lse", grad_lse, like_lse, like_lse.dtype)
    if probs.numel() == 0:
        return grad_scores
    rows, columns = like_lse.numel(), probs.shape[-1]
    grads = (None, 0) if grad_probs is None else _rows(grad_probs, rows)
    of_lse = None if grad_lse is None else grad_lse.contiguous()
    arguments = *grads, of_lse, *_rows(probs, rows), grad_scores
    _launch(softmax_lse_backward_kernel, rows, columns, scale, *arguments)
    return grad_scores


# Fake kernels: shape, dtype, device and strides of the results, for torch.compile.
@_softmax_lse.register_fake
def _(scores, mask=None, scale=1.0):
    _check("scores", scores, scale)
    _check_like("mask", mask, scores, torch.bool, broadcasts=True)
    return _new_results(scores)


@_softmax_lse_backward.register_fake
def _(grad_probs, grad_lse, probs, scale):
    return probs.new_empty(probs.shape)


def _save_probs(ctx, inputs, output):
    ctx.scale = inputs[2]
    ctx.save_for_backward(output[0])
    ctx.set_materialize_grads(False)  # a result that nobody used has None, not zeros


def _backward(ctx, grad_probs, grad_lse):
    (probs,) = ctx.saved_tensors
    again = torch.is_grad_enabled()  # create_graph=True: to be differentiated again
    compute = gradient if again else torch.ops.starter.softmax_lse_backward
    return compute(grad_probs, grad_lse, probs, ctx.scale), None, None


_softmax_lse.register_autograd(_backward, setup_context=_save_probs)
refuse_forward_mode(_softmax_lse)
refuse_forward_mode(_softmax_lse_backward)

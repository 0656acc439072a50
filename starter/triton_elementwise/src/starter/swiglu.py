"""swiglu in Triton: formula, kernels, operator and gradient."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from starter.forward_mode import refuse_forward_mode

# Elements of a program: 4 warps, 16 bytes of bf16 for each thread.
BLOCK = tl.constexpr(1024)
INTERPRETED = triton.knobs.runtime.interpret  # TRITON_INTERPRET=1: runs on the CPU


def swiglu(gate: Tensor, up: Tensor, limit: float | None = None) -> Tensor:
    """Compute ``SiLU(gate) * up``, where ``SiLU(x) = x / (1 + exp(-x))``.

    A limit replaces ``gate`` by ``min(gate, limit)`` and ``up`` by
    ``min(max(up, -limit), limit)`` first.

    Args:
        gate: Any shape and strides; fp16, bf16, fp32 or fp64.
        up: Of the same shape, dtype and device. Nothing is broadcast.
        limit: A positive number; ``None`` for no limit. Triton compiles a kernel for
            each value.

    Returns:
        A contiguous tensor of that shape and dtype, computed in fp32 or fp64.

    Raises:
        RuntimeError: Shapes, dtypes or devices differ, Triton does not run on the
            device, the dtype is another one, or ``limit`` is not positive.
        NotImplementedError: In forward-mode differentiation.
    """
    return torch.ops.starter.swiglu(gate, up, limit)


# [math] of one element: for the kernels, and in PyTorch's operators
@triton.jit
def swiglu_clamped(gate, up, LIMIT: tl.constexpr):
    if LIMIT is not None:
        gate = tl.where(gate > LIMIT, LIMIT, gate)
        up = tl.where(up > LIMIT, LIMIT, tl.where(up < -LIMIT, -LIMIT, up))
    return gate, up


@triton.jit
def swiglu_value(gate, up, LIMIT: tl.constexpr):
    g, u = swiglu_clamped(gate, up, LIMIT)
    return g * tl.sigmoid(g) * u


@triton.jit
def swiglu_gradients(d, gate, up, LIMIT: tl.constexpr):
    g, u = swiglu_clamped(gate, up, LIMIT)
    sigmoid = tl.sigmoid(g)
    dg = d * u * sigmoid * (1 + g * (1 - sigmoid))
    du = d * g * sigmoid
    if LIMIT is not None:  # what was clamped no longer depends on its input
        dg = tl.where(gate > LIMIT, 0.0, dg)
        du = tl.where((up > LIMIT) | (up < -LIMIT), 0.0, du)
    return dg, du


def composite(gate: Tensor, up: Tensor, limit: float | None) -> Tensor:
    """Compute the same in PyTorch's operators, which have all derivatives."""
    g, u = (arg.to(torch.promote_types(arg.dtype, torch.float32)) for arg in (gate, up))
    if limit is not None:  # not clamp: its gradient at the limit is 0 since torch 2.14
        g = g.masked_fill(g > limit, limit)
        u = u.masked_fill(u > limit, limit).masked_fill(u < -limit, -limit)
    return (torch.nn.functional.silu(g) * u).to(gate.dtype)


# [/math]


# A program computes BLOCK elements of a row; the mask says where the row ends
@triton.jit
def position(columns):
    blocks = tl.cdiv(columns, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    column = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return row, column, column < columns


@triton.jit
def load(place, mask):
    x = tl.load(place, mask=mask)
    return x if x.dtype == tl.float64 else x.to(tl.float32)


@triton.jit
def swiglu_kernel(gate, up, g_stride, u_stride, output, columns, LIMIT: tl.constexpr):
    row, column, mask = position(columns)
    g = load(gate + row * g_stride + column, mask)
    u = load(up + row * u_stride + column, mask)
    y = swiglu_value(g, u, LIMIT)
    tl.store(output + row * columns + column, y, mask=mask)  # converts to its dtype


@triton.jit
def swiglu_backward_kernel(
    grad, gate, up, d_stride, g_stride, u_stride, dg, du, columns, LIMIT: tl.constexpr
):
    row, column, mask = position(columns)
    d = load(grad + row * d_stride + column, mask)
    g = load(gate + row * g_stride + column, mask)
    u = load(up + row * u_stride + column, mask)
    grad_gate, grad_up = swiglu_gradients(d, g, u, LIMIT)
    if dg is not None:
        tl.store(dg + row * columns + column, grad_gate, mask=mask)
    if du is not None:
        tl.store(du + row * columns + column, grad_up, mask=mask)


def _check(gate: Tensor, limit: float | None, **others: Tensor) -> None:
    floating = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    checks = [
        (gate.dtype in floating, "gate of fp16, bf16, fp32 or fp64", gate.dtype),
        (INTERPRETED or not gate.is_cpu, "gate on a GPU", gate.device),
        (limit is None or limit > 0, "limit to be positive", limit),
    ]
    for name, x in others.items():
        shape = f"{name} of shape {[*gate.shape]}", [*x.shape]
        checks += [
            (x.dim() == gate.dim(), *shape),
            *((a == b, *shape) for a, b in zip(x.shape, gate.shape, strict=False)),
            (x.dtype == gate.dtype, f"{name} of dtype {gate.dtype}", x.dtype),
            (x.device == gate.device, f"{name} on {gate.device}", x.device),
        ]
    for is_right, what, it in checks:
        # While torch.compile traces sizes that depend on data, it is asked later.
        words = f"starter::swiglu: expected {what}, but got {it}"
        torch._check(is_right, lambda words=words: words)


def _new_empty(like: Tensor, *needed: bool) -> tuple[Tensor, ...]:
    """Allocate outputs; without elements, if they are not needed."""
    return tuple(like.new_empty(like.shape if need else (0,)) for need in needed)


def _launch(kernel, limit: float | None, needed: tuple[bool, ...], *inputs: Tensor):
    """Launch over rows: long rows of a view stay in place, others become one row."""
    outputs = _new_empty(inputs[0], *needed)
    count, columns = inputs[0].numel(), inputs[0].shape[-1:].numel()
    if count == 0:
        return outputs
    if columns < BLOCK.value or all(x.is_contiguous() for x in inputs):
        columns = count
    inputs = [x.reshape(-1, columns) for x in inputs]  # a copy if it cannot be a view
    inputs = [x if x.stride(1) == 1 else x.contiguous() for x in inputs]
    strides = [x.stride(0) for x in inputs]
    grid = (count // columns * triton.cdiv(columns, BLOCK.value),)
    written = [x if need else None for x, need in zip(outputs, needed, strict=True)]
    with torch.cuda.device_of(inputs[0]):
        kernel[grid](*inputs, *strides, *written, columns, limit)
    return outputs


@torch.library.custom_op("starter::swiglu", mutates_args=())
def _swiglu(gate: Tensor, up: Tensor, limit: float | None = None) -> Tensor:
    _check(gate, limit, up=up)
    return _launch(swiglu_kernel, limit, (True,), gate, up)[0]


@torch.library.custom_op("starter::swiglu_backward", mutates_args=())
def _swiglu_backward(
    grad: Tensor,
    gate: Tensor,
    up: Tensor,
    limit: float | None = None,
    need_gate: bool = True,
    need_up: bool = True,
) -> tuple[Tensor, Tensor]:
    _check(gate, limit, up=up, grad=grad)
    needed = need_gate, need_up
    return _launch(swiglu_backward_kernel, limit, needed, grad, gate, up)


# Fake kernels: shape, dtype, device and strides of the results, for torch.compile.
@_swiglu.register_fake
def _(gate, up, limit=None):
    _check(gate, limit, up=up)
    return gate.new_empty(gate.shape)


@_swiglu_backward.register_fake
def _(grad, gate, up, limit=None, need_gate=True, need_up=True):
    return _new_empty(gate, need_gate, need_up)


def _save_inputs(ctx, inputs, output):
    gate, up, ctx.limit = inputs
    ctx.save_for_backward(gate, up)


def _backward(ctx, grad):
    inputs, needed = ctx.saved_tensors, ctx.needs_input_grad[:2]
    if torch.is_grad_enabled():  # create_graph=True: this will be differentiated again
        # Views, because the caller may have computed one input from the other.
        gate, up = (x.view_as(x).requires_grad_() for x in inputs)
        output = composite(gate, up, ctx.limit)
        return *torch.autograd.grad(output, (gate, up), grad, create_graph=True), None
    return *torch.ops.starter.swiglu_backward(grad, *inputs, ctx.limit, *needed), None


_swiglu.register_autograd(_backward, setup_context=_save_inputs)
refuse_forward_mode(_swiglu)
refuse_forward_mode(_swiglu_backward)

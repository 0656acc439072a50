"""swiglu: the Python side of ``torch.ops.starter.swiglu``."""

import torch
from torch import Tensor


# [interface]
def swiglu(gate: Tensor, up: Tensor, limit: float | None = None) -> Tensor:
    """Compute ``SiLU(gate) * up``, where ``SiLU(x) = x / (1 + exp(-x))``.

    A limit replaces ``gate`` by ``min(gate, limit)`` and ``up`` by
    ``min(max(up, -limit), limit)`` first.

    Args:
        gate: Any shape and strides; fp16, bf16, fp32 or fp64.
        up: Of the same shape, dtype and device. Nothing is broadcast.
        limit: A positive number; ``None`` for no limit.

    Returns:
        A contiguous tensor of that shape and dtype, computed in fp32 or fp64.

    Raises:
        RuntimeError: Shapes, dtypes or devices differ, the dtype is another one, or
            ``limit`` is not positive.
    """
    # [autograd]
    if _has_tangent(gate, up):  # PyTorch would return a derivative of zero
        raise NotImplementedError("starter.swiglu has no forward-mode derivative")
    # [/autograd]
    return torch.ops.starter.swiglu(gate, up, limit)


# [/interface]


# [fake] shape, dtype, device and strides of the results, for torch.compile
@torch.library.register_fake("starter::swiglu")
def _(gate, up, limit=None):
    wrong = "starter::swiglu: expected up"
    shapes = f"{wrong} of shape {[*gate.shape]}, but got {[*up.shape]}"
    device = f"{wrong} on the device of the other arguments"
    torch._check(gate.dim() == up.dim(), lambda: shapes)
    for g, u in zip(gate.shape, up.shape, strict=True):
        torch._check(g == u, lambda: shapes)  # later, if they depend on data
    torch._check(gate.device == up.device, lambda: device)
    return gate.new_empty(gate.shape)


# [/fake]


# [autograd]
@torch.library.register_fake("starter::swiglu_backward")
def _(grad, gate, up, limit=None, need_gate=True, need_up=True):
    needed = need_gate, need_up
    return tuple(gate.new_empty(gate.shape if need else (0,)) for need in needed)


def _has_tangent(*tensors: Tensor) -> bool:
    # torch.compile cannot trace it before 2.13. To compare versions is slow: so last.
    can_ask = not torch.compiler.is_compiling() or torch.__version__ >= (2, 13)
    unpack = torch.autograd.forward_ad.unpack_dual
    return can_ask and any(unpack(x).tangent is not None for x in tensors)


# [math]
def composite(gate: Tensor, up: Tensor, limit: float | None) -> Tensor:
    """Compute the same in PyTorch's operators, which have all derivatives."""
    g, u = (arg.to(torch.promote_types(arg.dtype, torch.float32)) for arg in (gate, up))
    if limit is not None:  # not clamp: its gradient at the limit is 0 since torch 2.14
        g = g.masked_fill(g > limit, limit)
        u = u.masked_fill(u > limit, limit).masked_fill(u < -limit, -limit)
    return (torch.nn.functional.silu(g) * u).to(gate.dtype)


# [/math]


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


torch.library.register_autograd(
    "starter::swiglu", _backward, setup_context=_save_inputs
)
# [/autograd]

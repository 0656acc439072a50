"""swiglu: interface, fake kernels and gradient of ``torch.ops.starter.swiglu``."""

import torch
from torch import Tensor
from torch.autograd import forward_ad

# PyTorch 2.13 is the first whose torch.compile can trace forward_ad.unpack_dual.
TRACES_FORWARD_MODE = torch.__version__ >= (2, 13)


# [interface]
def swiglu(gate: Tensor, up: Tensor, limit: float | None = None) -> Tensor:
    """Compute ``SiLU(gate) * up``, where ``SiLU(x) = x / (1 + exp(-x))``.

    With a limit, ``gate`` is replaced by ``min(gate, limit)`` and ``up`` by
    ``min(max(up, -limit), limit)`` first. The models of gpt-oss clamp like this; they
    also scale by 1.702 inside the exponential and add 1 to ``up``, which this operator
    does not.

    The formula runs in fp32 for fp16, bf16 and fp32, and in fp64 for fp64; the result
    is rounded once.

    Args:
        gate: Any shape and strides; fp16, bf16, fp32 or fp64.
        up: Of the same shape, dtype and device. Shapes are not broadcast.
        limit: A positive number. ``None`` means no limit.

    Returns:
        A contiguous tensor of ``gate``'s shape and dtype.

    Raises:
        RuntimeError: The shape, dtype or device of ``up`` is not that of ``gate``, the
            dtype is another one, or ``limit`` is not positive.
        NotImplementedError: In forward-mode differentiation.
    """
    if TRACES_FORWARD_MODE or not torch.compiler.is_compiling():
        for tensor in (gate, up):
            # Without this question, PyTorch would return a derivative of zero.
            if forward_ad.unpack_dual(tensor).tangent is not None:
                raise NotImplementedError(
                    "starter.swiglu has no forward-mode derivative: use reverse mode"
                )
    return torch.ops.starter.swiglu(gate, up, limit)


# [/interface]


# [math]
def composite(gate: Tensor, up: Tensor, limit: float | None) -> Tensor:
    """Compute the same in PyTorch's operators, which have all derivatives."""
    dtype = torch.promote_types(gate.dtype, torch.float32)
    g, u = gate.to(dtype), up.to(dtype)
    if limit is not None:
        g, u = g.clamp(max=limit), u.clamp(-limit, limit)
    return (torch.nn.functional.silu(g) * u).to(gate.dtype)


# [/math]


# [fake]
@torch.library.register_fake("starter::swiglu")
def _(gate, up, limit=None):
    """Return a tensor of the result's shape, dtype and device, without data."""
    torch._check(
        gate.shape == up.shape,
        lambda: (
            f"starter::swiglu: expected up of gate's shape, {list(gate.shape)}, "
            f"but got {list(up.shape)}"
        ),
    )
    return gate.new_empty(gate.shape)


@torch.library.register_fake("starter::swiglu_backward")
def _(grad, gate, up, limit=None):
    return gate.new_empty(gate.shape), gate.new_empty(gate.shape)


# [/fake]


# [autograd]
def _save_inputs(ctx, inputs, output):
    gate, up, ctx.limit = inputs
    ctx.save_for_backward(gate, up)


def _backward(ctx, grad):
    """Return a gradient for each argument; ``limit`` has none."""
    gate, up = ctx.saved_tensors
    if torch.is_grad_enabled():  # create_graph=True: autograd will differentiate this
        _, vjp = torch.func.vjp(lambda g, u: composite(g, u, ctx.limit), gate, up)
        return *vjp(grad), None
    return *torch.ops.starter.swiglu_backward(grad, gate, up, ctx.limit), None


torch.library.register_autograd(
    "starter::swiglu", _backward, setup_context=_save_inputs
)
# [/autograd]

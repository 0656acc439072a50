"""norm::forward, RMSNorm with a gradient: Triton on a GPU, PyTorch on the CPU."""

import importlib.util

import torch
from torch import Tensor

if importlib.util.find_spec("triton"):
    import kernels


# [operator]
@torch.library.custom_op("norm::forward", mutates_args=())
def forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Normalize each row; also return the reciprocal root mean squares."""
    if weight.shape != x.shape[-1:] or weight.dtype != x.dtype:
        raise ValueError(
            f"norm::forward: expected weight of shape {list(x.shape[-1:])} and "
            f"{x.dtype}, but got {list(weight.shape)} and {weight.dtype}"
        )
    if x.is_cuda:
        return kernels.forward(x, weight, eps)
    rrms = torch.rsqrt(x.float().square().mean(-1) + eps)
    return (x * rrms[..., None] * weight).to(x.dtype), rrms


@forward.register_fake
def _(x, weight, eps):
    return x.new_empty(x.shape), x.new_empty(x.shape[:-1], dtype=torch.float32)


@torch.library.custom_op("norm::backward", mutates_args=())
def backward(
    grad: Tensor, x: Tensor, weight: Tensor, rrms: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of x and of the weight."""
    if x.is_cuda:
        return kernels.backward(grad, x, weight, rrms)
    r = rrms[..., None]
    normed, scaled = x * r, grad * weight
    mean = (scaled * normed).mean(-1, keepdim=True)
    of_weight = (grad * normed).flatten(0, -2).sum(0)
    return (r * (scaled - normed * mean)).to(x.dtype), of_weight.to(x.dtype)


@backward.register_fake
def _(grad, x, weight, rrms):
    return x.new_empty(x.shape), x.new_empty(weight.shape)


def save(ctx, inputs, output):
    """Keep what backward reads."""
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight, output[1])


def gradients(ctx, grad, _):
    """Gradients of the three arguments."""
    return *backward(grad, *ctx.saved_tensors), None


forward.register_autograd(gradients, setup_context=save)


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """RMSNorm of the last dimension."""
    return forward(x, weight, eps)[0]


# [/operator]

"""Find the factor that a gradient should not have.

`softcap(x, cap)` is cap * tanh(x / cap). opcheck passes, and training seems to work,
only slowly. Compare the backward function with the derivative, and mend it.
"""

import torch


@torch.library.custom_op("gradient_factor::softcap", mutates_args=())
def softcap(x: torch.Tensor, cap: float) -> torch.Tensor:
    return cap * torch.tanh(x / cap)


def setup_context(ctx, inputs, output):
    x, ctx.cap = inputs
    ctx.save_for_backward(x)


# [gap]
def backward(ctx, grad):
    (x,) = ctx.saved_tensors
    tanh = torch.tanh(x / ctx.cap)
    return grad * (1 - tanh**2) / ctx.cap, None


# [/gap]

softcap.register_autograd(backward, setup_context=setup_context)

"""Differentiate a row divided by a statistic of itself.

`normalize` multiplies each row by r, one over the root of its mean square. The backward
function takes r for a constant, but each element of the row moves it. Mend the formula.
"""

import torch


@torch.library.custom_op("statistic_gradient::normalize", mutates_args=())
def normalize(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True))


def setup_context(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


# [gap]
def backward(ctx, grad):
    (x,) = ctx.saved_tensors
    r = torch.rsqrt(x.square().mean(-1, keepdim=True))
    return grad * r


# [/gap]

normalize.register_autograd(backward, setup_context=setup_context)

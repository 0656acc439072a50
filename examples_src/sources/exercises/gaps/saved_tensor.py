"""Save the tensor that the backward function uses.

The derivative of y = sigmoid(x) is y * (1 - y), so the backward function is right.
Mend what is kept for it. The gradient itself must be differentiable, too.
"""

import torch


@torch.library.custom_op("saved_tensor::sigmoid", mutates_args=())
def sigmoid(x: torch.Tensor) -> torch.Tensor:
    return 1 / (1 + torch.exp(-x))


# [gap]
def setup_context(ctx, inputs, output):
    (x,) = inputs
    ctx.save_for_backward(x)


# [/gap]


def backward(ctx, grad):
    (y,) = ctx.saved_tensors
    return grad * y * (1 - y)


sigmoid.register_autograd(backward, setup_context=setup_context)

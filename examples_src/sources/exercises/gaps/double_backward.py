"""Differentiate an operator twice.

The gradient of `cube` is computed by an operator, `cube_backward`, as it would be in
C++. A penalty on gradients needs the derivative of that operator too. Register it.
"""

import torch


@torch.library.custom_op("double_backward::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x**3


@torch.library.custom_op("double_backward::cube_backward", mutates_args=())
def cube_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return grad * 3 * x**2


def save_inputs(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def backward(ctx, grad):
    (x,) = ctx.saved_tensors
    return cube_backward(grad, x)


cube.register_autograd(backward, setup_context=save_inputs)

# [gap]
# Write the backward function of cube_backward, and register it.
# [/gap]

"""Find four faults in one operator.

`softcap(x, scale, cap)` is cap * tanh(x * scale / cap), where scale has a number for
each column of x, and the result has the dtype that eager gives it. A test with an fp32
matrix and a scale of ones passes. The command names the tests that fail. A fault may
fail several, and hide another fault.
"""

import torch


# [gap]
@torch.library.custom_op("four_faults::softcap", mutates_args=())
def softcap(x: torch.Tensor, scale: torch.Tensor, cap: float) -> torch.Tensor:
    scaled = x.contiguous()
    scaled *= scale
    return cap * torch.tanh(scaled / cap)


@softcap.register_fake
def softcap_fake(x, scale, cap):
    return torch.empty_like(x)


def setup_context(ctx, inputs, output):
    x, scale, ctx.cap = inputs
    ctx.save_for_backward(x, scale)


def backward(ctx, grad):
    x, scale = ctx.saved_tensors
    slope = grad * (1 - torch.tanh(x / ctx.cap) ** 2)
    return slope * scale, (slope * x).sum_to_size(scale.shape), None


softcap.register_autograd(backward, setup_context=setup_context)
# [/gap]

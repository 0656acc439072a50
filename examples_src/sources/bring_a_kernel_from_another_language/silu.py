"""SiLU and its gradient, a pair of operators with kernels from any language."""

import importlib
from types import ModuleType

import torch
from torch import Tensor

# [backend]
LANGUAGE = {
    "cpu": "torch",
    "cuda": "nvrtc",
}  # by type of device; in_NAME.py is the module


def _kernels(x: Tensor) -> ModuleType:
    """The module whose functions take contiguous tensors, and write to the last one."""
    if x.dtype != torch.float32:
        raise TypeError(f"languages::silu: x must be float32, got {x.dtype}")
    if x.device.type not in LANGUAGE:
        raise RuntimeError(f"languages::silu: no kernel for {x.device.type}")
    if x.numel() > 2**31 - 1:  # most languages count in 32 bits
        raise ValueError(f"languages::silu: {x.numel()} elements are too many")
    return importlib.import_module(f"in_{LANGUAGE[x.device.type]}")


# [/backend]


# [operators]
@torch.library.custom_op("languages::silu", mutates_args=())
def silu(x: Tensor) -> Tensor:
    """Multiply x by its sigmoid."""
    kernels, x = _kernels(x), x.contiguous()
    y = torch.empty_like(x)
    if x.numel() > 0:
        with torch.cuda.device_of(x):
            kernels.forward(x, y)
    return y


@torch.library.custom_op("languages::silu_backward", mutates_args=())
def silu_backward(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of silu."""
    kernels, grad, x = _kernels(x), grad.contiguous(), x.contiguous()
    grad_x = torch.empty_like(x)
    if x.numel() > 0:
        with torch.cuda.device_of(x):
            kernels.backward(grad, x, grad_x)
    return grad_x


@silu.register_fake
def _(x):
    return x.new_empty(x.shape)


@silu_backward.register_fake
def _(grad, x):
    return x.new_empty(x.shape)


def _setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


silu.register_autograd(
    lambda ctx, grad: silu_backward(grad, *ctx.saved_tensors), setup_context=_setup
)
# [/operators]

"""The operators that are sharded: RMSNorm, and a linear layer with GELU."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "modules"))
from transformer import MLP

ops = torch.ops.sharded


@torch.library.custom_op("sharded::norm", mutates_args=())
def norm_op(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Normalize each row; also return a number for each, its reciprocal RMS."""
    rrms = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return x * rrms * weight, rrms


@torch.library.custom_op("sharded::norm_backward", mutates_args=())
def norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor, rrms: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of x and of the weight."""
    normed, scaled = x * rrms, grad * weight
    mean = (scaled * normed).mean(-1, keepdim=True)
    return rrms * (scaled - normed * mean), (grad * normed).flatten(0, -2).sum(0)


@torch.library.custom_op("sharded::linear_gelu", mutates_args=())
def linear_gelu_op(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """GELU of the product, and the product."""
    product = F.linear(x, weight, bias)
    return F.gelu(product), product


@norm_op.register_fake
def _(x, weight, eps):
    return x.new_empty(x.shape), x.new_empty((*x.shape[:-1], 1))


@norm_backward.register_fake
def _(grad, x, weight, rrms):
    return x.new_empty(x.shape), x.new_empty(weight.shape)


@linear_gelu_op.register_fake
def _(x, weight, bias):
    shape = (*x.shape[:-1], weight.shape[0])
    return x.new_empty(shape), x.new_empty(shape)


def save(ctx, inputs, output):
    """Keep input, weight, and the second output."""
    ctx.save_for_backward(*inputs[:2], output[1])


def norm_gradients(ctx, grad, _):
    """By the operator of the gradients."""
    return *norm_backward(grad, *ctx.saved_tensors), None


def linear_gelu_gradients(ctx, grad, _):
    """By PyTorch's operators, which have rules."""
    x, weight, product = ctx.saved_tensors
    grad = torch.ops.aten.gelu_backward(grad, product)
    rows = grad.flatten(0, -2)
    return grad @ weight, rows.t() @ x.flatten(0, -2), rows.sum(0)


norm_op.register_autograd(norm_gradients, setup_context=save)
linear_gelu_op.register_autograd(linear_gelu_gradients, setup_context=save)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm of the last dimension."""
    return norm_op(x, weight, eps)[0]


class Norm(nn.RMSNorm):
    """The module of the first operator."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalize rows."""
        return rms_norm(x, self.weight, self.eps)


class FusedMLP(MLP):
    """The module of the second one."""

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position by itself."""
        return self.down(linear_gelu_op(x, self.up.weight, self.up.bias)[0])


def patch(model: nn.Module) -> nn.Module:
    """Make the norms and MLPs of a model call the operators."""
    swaps = {nn.RMSNorm: Norm, MLP: FusedMLP}
    for module in model.modules():
        module.__class__ = swaps.get(type(module), type(module))
    return model

"""softmax_lse: the Python side of ``torch.ops.starter.softmax_lse``."""

import torch
from torch import Tensor


def softmax_lse(
    scores: Tensor, mask: Tensor | None = None, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Compute ``softmax(scale * scores)`` of each row, and ``logsumexp`` of the same.

    A row is what lies along the last dimension. Where the mask is False, the score
    counts as minus infinity. In a row in which all do, the probabilities are 0, the
    logarithm is minus infinity, and the gradient is 0.

    Args:
        scores: Any strides, and 1 dimension or more; fp16, bf16, fp32 or fp64.
        mask: Of dtype bool, and any shape that broadcasts to that of the scores.
        scale: A number that is finite in fp32.

    Returns:
        Both contiguous: the probabilities, like the scores, and one logarithm for each
        row, in fp32, or in fp64 for fp64.

    Raises:
        RuntimeError: The mask does not broadcast, devices differ, or a dtype or the
            scale is not one of these.
        NotImplementedError: In forward-mode differentiation.
    """
    if _has_tangent(scores):  # PyTorch would return a derivative of zero
        raise NotImplementedError("starter.softmax_lse has no forward-mode derivative")
    return torch.ops.starter.softmax_lse(scores, mask, scale)


def _has_tangent(*tensors: Tensor) -> bool:
    # torch.compile cannot trace it before 2.13. To compare versions is slow: so last.
    can_ask = not torch.compiler.is_compiling() or torch.__version__ >= (2, 13)
    unpack = torch.autograd.forward_ad.unpack_dual
    return can_ask and any(unpack(x).tangent is not None for x in tensors)


# Shape, dtype, device and strides of the results, for torch.compile.
@torch.library.register_fake("starter::softmax_lse")
def _(scores, mask=None, scale=1.0):
    wrong = "starter::softmax_lse: expected"
    some = f"{wrong} scores with 1 dimension or more, but got none"
    torch._check(scores.dim() > 0, lambda: some)
    if mask is not None:
        shapes = f"{[*scores.shape]}, but got {[*mask.shape]}"
        shape = f"{wrong} mask that broadcasts to shape {shapes}"
        device = f"{wrong} mask on the device of the other arguments"
        torch._check(mask.dim() <= scores.dim(), lambda: shape)
        for m, s in zip(reversed(mask.shape), reversed(scores.shape), strict=False):
            torch._check((m == 1) | (m == s), lambda: shape)  # later, if data decide
        torch._check(mask.device == scores.device, lambda: device)
    wide = torch.promote_types(scores.dtype, torch.float32)
    lse = scores.new_empty(scores.shape[:-1], dtype=wide)
    return scores.new_empty(scores.shape), lse


@torch.library.register_fake("starter::softmax_lse_backward")
def _(grad_probs, grad_lse, probs, scale=1.0):
    return probs.new_empty(probs.shape)


# [math]
def gradient(
    grad_probs: Tensor | None, grad_lse: Tensor | None, probs: Tensor, scale: float
) -> Tensor:
    """Compute the gradient in PyTorch's operators, which have all derivatives."""
    p = probs.to(torch.promote_types(probs.dtype, torch.float32))
    arrived = torch.zeros_like(p)
    if grad_probs is not None:
        d = grad_probs.to(p.dtype).masked_fill(p == 0, 0)
        arrived = d - (d * p).sum(-1, keepdim=True)
    if grad_lse is not None:
        arrived = arrived + grad_lse.unsqueeze(-1)
    return (scale * arrived.masked_fill(p == 0, 0) * p).to(probs.dtype)


# [/math]


def _save_probs(ctx, inputs, output):
    ctx.scale = inputs[2]
    ctx.save_for_backward(output[0])
    ctx.set_materialize_grads(False)  # a result that nobody used has None, not zeros


def _backward(ctx, grad_probs, grad_lse):
    (probs,) = ctx.saved_tensors
    if torch.is_grad_enabled():  # create_graph=True: this will be differentiated again
        return gradient(grad_probs, grad_lse, probs, ctx.scale), None, None
    kernel = torch.ops.starter.softmax_lse_backward
    return kernel(grad_probs, grad_lse, probs, ctx.scale), None, None


torch.library.register_autograd(
    "starter::softmax_lse", _backward, setup_context=_save_probs
)

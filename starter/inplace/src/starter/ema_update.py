"""ema_update_: the Python side of ``torch.ops.starter.ema_update_``."""

import torch
from torch import Tensor


def ema_update_(state: Tensor, x: Tensor, decay: float) -> None:
    """Compute ``decay * state + (1 - decay) * x``, and write it over ``state``.

    No gradient passes through it: where one is needed, it raises.

    Args:
        state: Any strides with which no two elements share memory; fp16, bf16, fp32 or
            fp64. In half precision, a small step may be rounded away.
        x: Of the same shape, dtype and device. Nothing is broadcast. It may be
            ``state`` itself, but must not overlap it in another way.
        decay: A number from 0 to 1.

    Raises:
        RuntimeError: Shapes, dtypes or devices differ, memory overlaps, the dtype or
            ``decay`` is not one of these, an argument requires grad outside
            ``torch.no_grad()``, or ``state`` was made in inference mode and this is
            called outside it.
        NotImplementedError: In forward-mode differentiation.
    """
    torch.ops.starter.ema_update_(state, x, decay)


@torch.library.register_fake("starter::ema_update_")
def _(state, x, decay):
    wrong = "starter::ema_update_: expected x"
    shapes = f"{wrong} of shape {[*state.shape]}, but got {[*x.shape]}"
    device = f"{wrong} on the device of the other arguments"
    torch._check(state.dim() == x.dim(), lambda: shapes)
    for s, v in zip(state.shape, x.shape, strict=True):
        torch._check(s == v, lambda: shapes)  # later, if they depend on data
    torch._check(state.device == x.device, lambda: device)


# [math]
def composite(state: Tensor, x: Tensor, decay: float) -> Tensor:
    """Compute the same in PyTorch's operators, as a new tensor."""
    wide = torch.promote_types(state.dtype, torch.float32)
    return (decay * state.to(wide) + (1 - decay) * x.to(wide)).to(state.dtype)


# [/math]


def _with_autograd(keys, state, x, decay):
    """Refuse what would have a gradient: PyTorch would silently pass on a wrong one."""
    for name, tensor in (("state", state), ("x", x)):
        if torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None:
            raise NotImplementedError(
                "starter::ema_update_ has no forward-mode derivative"
            )
        if torch.is_grad_enabled() and tensor.requires_grad:
            raise RuntimeError(
                f"starter::ema_update_: {name} requires grad, but no gradient passes "
                "through; call it under torch.no_grad(), or detach() the tensor"
            )
    _count_the_write(keys, state, x, decay)


def _count_the_write(keys, state, x, decay):
    """Write, and tell autograd, which may have saved the old value for backward."""
    if state.is_inference() and not torch.is_inference_mode_enabled():
        raise RuntimeError(
            "starter::ema_update_: state was made in inference mode and can be written "
            "to only there; clone() it first"
        )
    if state.is_neg() or isinstance(state.storage_offset(), torch.SymInt):
        # Views that PyTorch hands to no operator that returns nothing, and views whose
        # place torch.compile loses (pytorch#198068): copy_ writes to both.
        state.copy_(composite(state, x, decay))
        return
    with torch._C._AutoDispatchBelowADInplaceOrView():
        keys = keys & torch._C._after_ADInplaceOrView_keyset
        torch.ops.starter.ema_update_.default.redispatch(keys, state, x, decay)
    torch.autograd.graph.increment_version(state)


# Inference mode has no Autograd, but counts writes too.
_library = torch.library.Library("starter", "IMPL")
_library.impl("ema_update_", _with_autograd, "Autograd", with_keyset=True)
_library.impl("ema_update_", _count_the_write, "ADInplaceOrView", with_keyset=True)

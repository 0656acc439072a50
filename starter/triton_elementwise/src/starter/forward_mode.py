"""A refusal of forward mode, where PyTorch would return zeros for these operators."""

import warnings

import torch
from torch import Tensor
from torch.autograd import forward_ad


def refuse_tangents(name: str, *args) -> None:
    """Raise if an argument has a tangent, which the operator would lose."""
    tensors = (x for x in args if isinstance(x, Tensor))
    if any(forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        raise NotImplementedError(f"{name} has no forward-mode derivative")


def refuse_forward_mode(op) -> None:
    """Let a ``custom_op`` raise in forward mode, once its gradient is registered."""
    reverse_mode = torch._library.autograd.make_autograd_impl(op._opoverload, op)

    def kernel(keys, *args):
        refuse_tangents(op._qualname, *args)
        return reverse_mode(keys, *args)

    options = {"with_keyset": True, "allow_override": True}
    with warnings.catch_warnings():  # of what is meant: to replace custom_op's kernel
        warnings.simplefilter("ignore")
        op._lib.impl(op._name, kernel, "Autograd", **options)

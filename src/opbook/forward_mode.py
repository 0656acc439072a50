"""Gradients for reverse mode that refuse every other mode, and say which operator does.

``torch.library.register_autograd`` knows reverse mode alone. In forward mode its kernel
returns results without a tangent, which reads as a derivative of zero.
"""

import functools
import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch._library.autograd import Info, make_autograd_impl
from torch.autograd import forward_ad


def register_autograd(
    name: str, backward: Callable | None, /, *, setup_context: Callable | None = None
) -> None:
    """Register a gradient, as :func:`torch.library.register_autograd` does.

    A call that needs no gradient takes a shorter way than PyTorch's, which saves more
    than the question for tangents costs.

    Args:
        name: With namespace: ``"opbook::add_one"``. A ``custom_op`` works too; its
            own method ``register_autograd`` is then not needed.
        backward: As there. ``None`` refuses reverse mode as well.
        setup_context: As there.

    The operator will raise:
        NotImplementedError: An input has a tangent (``torch.func.jvp``, ``jacfwd``,
            ``torch.autograd.forward_ad``), or is differentiated by ``torch.func``
            (``grad``, ``vjp``, ``jacrev``, ``hessian``).
    """
    namespace, _, opname = name.partition("::")
    op = getattr(getattr(torch.ops, namespace), opname).default
    differentiable = make_autograd_impl(op, Info(backward, setup_context))

    def kernel(keyset, *args, **kwargs):
        if forward_ad._current_level >= 0:  # inside of a dual level, or of jvp
            refuse_tangents(name, *args)
        if not (torch.is_grad_enabled() and torch._C._any_requires_grad(*args)):
            with torch._C._AutoDispatchBelowAutograd():
                keyset = keyset & torch._C._after_autograd_keyset
                return op.redispatch(keyset, *args, **kwargs)
        if torch._C._are_functorch_transforms_active():
            raise NotImplementedError(
                f"{name} cannot be differentiated by torch.func (grad, vjp, jacrev, "
                "hessian): use torch.autograd.grad or backward()"
            )
        return differentiable(keyset, *args, **kwargs)

    options = {"with_keyset": True, "allow_override": True}
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        # "Overriding a previously registered kernel": custom_op made one without this.
        _library(namespace).impl(opname, kernel, "Autograd", **options)


@functools.cache  # what is registered through a library ends with it
def _library(namespace: str) -> torch.library.Library:
    return torch.library.Library(namespace, "IMPL")


def refuse_tangents(name: str, *args) -> None:
    """Raise if an argument has a tangent, which the operator would lose.

    Raises:
        NotImplementedError: With the operator's name.
    """
    if any(map(has_tangent, args)):
        raise NotImplementedError(
            f"{name} has no forward-mode derivative (torch.func.jvp and jacfwd, "
            "torch.autograd.forward_ad): use torch.autograd.grad or backward()"
        )


def has_tangent(value) -> bool:
    """Whether forward-mode differentiation is under way for a tensor."""
    if forward_ad._current_level < 0 or not isinstance(value, Tensor):
        return False
    return forward_ad.unpack_dual(value).tangent is not None

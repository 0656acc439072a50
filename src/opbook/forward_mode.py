"""Gradients for reverse mode that cost little, and a refusal of every other mode.

``torch.library.register_autograd`` knows reverse mode alone. In forward mode its kernel
returns results without a tangent, which reads as a derivative of zero. Its kernel is
also Python code, which the dispatcher runs even if no gradient is wanted.
"""

import functools
import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch._functorch.utils import unwrap_dead_wrappers
from torch.autograd import forward_ad
from torch.overrides import has_torch_function


# [register]
def register_autograd(
    name: str, backward: Callable | None, /, *, setup_context: Callable | None = None
) -> Callable:
    """Register a gradient, as :func:`torch.library.register_autograd` does.

    The operator's arguments are single tensors or plain values, all positional.

    Args:
        name: With namespace: ``"opbook::rms_norm"``. A ``custom_op`` works too; its
            own method ``register_autograd`` is then not needed.
        backward: As there. ``None`` refuses reverse mode as well.
        setup_context: As there.

    Returns:
        A function that calls the operator with all its arguments in order. If nobody
        watches the call, it decides here whether there is a gradient, and the
        dispatcher's detour through Python is saved.

    Raises:
        ValueError: The operator has a keyword-only argument or a list of tensors.

    The operator will raise:
        NotImplementedError: An input has a tangent (``torch.func.jvp``, ``jacfwd``,
            ``torch.autograd.forward_ad``), or is differentiated by ``torch.func``
            (``grad``, ``vjp``, ``jacrev``, ``hessian``).
    """
    namespace, _, opname = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), opname)
    op = packet.default
    for argument in op._schema.arguments:
        kind = str(argument.type)
        if argument.kwarg_only or ("List" in kind and "Tensor" in kind):
            raise ValueError(
                f"{name}: register_autograd takes no keyword-only argument and no list "
                f"of tensors, but {argument.name} is one: use "
                "torch.library.register_autograd"
            )
    run = _differentiable(op, backward, setup_context)

    def kernel(*args):
        if forward_ad._current_level >= 0:  # inside of a dual level, or of jvp
            refuse_tangents(name, *args)
        if torch._C._are_functorch_transforms_active() and _wants_gradient(args):
            raise NotImplementedError(
                f"{name} cannot be differentiated by torch.func (grad, vjp, jacrev, "
                "hessian): use torch.autograd.grad or backward()"
            )
        return run(*args)

    def call(*args):
        return packet(*args) if _is_watched(args) else run(*args)

    with warnings.catch_warnings(action="ignore", category=UserWarning):
        # "Overriding a previously registered kernel": custom_op made one without this.
        _library(namespace).impl(opname, kernel, "Autograd", allow_override=True)
    return call


# [/register]


@functools.cache  # what is registered through a library ends with it
def _library(namespace: str) -> torch.library.Library:
    return torch.library.Library(namespace, "IMPL")


# [run]
def _differentiable(
    op: Callable, backward: Callable | None, setup_context: Callable | None
) -> Callable:
    """The operator below autograd, with a gradient if an input wants one."""

    def forward(ctx, *args):
        with torch._C._AutoDispatchBelowAutograd():
            output = op(*args)
        if setup_context is not None:
            setup_context(ctx, args, output)
        return output

    def refuse(ctx, *grads):
        raise RuntimeError(
            f"Trying to backward through {op} but no autograd formula was registered"
        )

    methods = {"forward": forward, "backward": backward or refuse}
    function = type(
        op.name().replace("::", "_"),
        (torch.autograd.Function,),
        {key: staticmethod(method) for key, method in methods.items()},
    )

    # Function.apply asks for torch.func and setup_context, which is known here.
    apply = super(torch.autograd.Function, function).apply
    defaults = [argument.default_value for argument in op._schema.arguments]

    def run(*args):
        if _wants_gradient(args):
            # The dispatcher leaves out trailing arguments that equal their defaults.
            return apply(*unwrap_dead_wrappers(args), *defaults[len(args) :])
        with torch._C._AutoDispatchBelowAutograd():
            return op(*args)

    return run


def _wants_gradient(args) -> bool:
    return torch.is_grad_enabled() and torch._C._any_requires_grad(*args)


def _is_watched(args) -> bool:
    """Whether somebody between the caller and the kernel has to see the operator."""
    return (
        torch.compiler.is_compiling()
        or has_torch_function(args)  # a subclass, or a mode
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch._C._is_tracing()
    )


# [/run]


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
    while torch._C._functorch.is_batchedtensor(value):  # vmap refuses unpack_dual
        value = torch._C._functorch.get_unwrapped(value)
    return forward_ad.unpack_dual(value).tangent is not None

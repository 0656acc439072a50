"""Operators whose name belongs to one module."""

from collections.abc import Callable

import torch
from torch.library import CustomOpDef

_owners: dict[str, str] = {}


# [custom_op]
def custom_op(name: str, *, mutates_args: tuple[str, ...]) -> Callable:
    """Register as :func:`torch.library.custom_op` does, but only under a free name.

    PyTorch replaces an operator that is defined again, so a copy of a module would
    change what the original computes. A module that is reloaded may define its own
    operators again.

    The decorator raises:
        ImportError: Another module has defined an operator of this name.
    """

    def register(function: Callable) -> CustomOpDef:
        namespace, _, operator = name.partition("::")
        owner = _owners.get(name)
        taken = hasattr(getattr(torch.ops, namespace), operator)
        if taken and owner != function.__module__:
            raise ImportError(
                f"{function.__module__} cannot define {name}: "
                f"{owner or 'another package'} has already defined it. "
                "Give the operator of one of them another namespace."
            )
        _owners[name] = function.__module__
        return torch.library.custom_op(name, function, mutates_args=mutates_args)

    return register


# [/custom_op]

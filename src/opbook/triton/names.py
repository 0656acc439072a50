"""Operators whose name belongs to one module."""

from collections.abc import Callable

import torch
from torch.library import CustomOpDef

_owners: dict[str, tuple[str, str]] = {}  # module and file


# [custom_op]
def custom_op(name: str, *, mutates_args: tuple[str, ...]) -> Callable:
    """Register as :func:`torch.library.custom_op` does, but only under a free name.

    PyTorch replaces an operator that is defined again, so a copy of a module would
    change what the original computes. A module that is reloaded, or a file that is
    loaded under another name, may define its own operators again.

    The decorator raises:
        ImportError: Another module has defined an operator of this name.
    """

    def register(function: Callable) -> CustomOpDef:
        namespace, _, operator = name.partition("::")
        module, file = function.__module__, function.__code__.co_filename
        owner, its_file = _owners.get(name, ("another package", ""))
        taken = hasattr(getattr(torch.ops, namespace), operator)
        if taken and module != owner and file != its_file:
            raise ImportError(
                f"{module} cannot define {name}: {owner} has already defined it. "
                "Give the operator of one of them another namespace."
            )
        _owners[name] = module, file
        return torch.library.custom_op(name, function, mutates_args=mutates_args)

    return register


# [/custom_op]

"""Replace the kernel of any operator for a while, from Python."""

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator

import torch


@contextlib.contextmanager
def override(operator: str, kernel: Callable, key: str) -> Iterator[None]:
    """Serve an operator's calls at one dispatch key with a kernel of your own.

    Args:
        operator: With namespace and overload: ``"aten::neg"``, ``"aten::add.Tensor"``.
        kernel: Called with the replaced kernel, then the operator's arguments. Call the
            replaced kernel where you need it: the operator itself would lead back here.
        key: A dispatch key, such as ``"CPU"``, ``"CUDA"`` or ``"AutogradCPU"``.

    Raises:
        ValueError: There is no such key; or the operator is composed of others, from
            whose gradients its own comes, and a kernel would hide them.
        RuntimeError: There is no such operator.

    Example:
        >>> def twice(original, x):
        ...     return 2 * original(x)
        >>> with override("aten::neg", twice, "CPU"):
        ...     torch.neg(torch.ones(2))
        tensor([-2., -2.])
    """
    replaced = torch.library.get_kernel(operator, key)
    composite = "CompositeImplicitAutograd"
    if torch._C._dispatch_has_kernel_for_dispatch_key(operator, composite):
        raise ValueError(
            f"{operator} is composed of other operators: override those, "
            "or it has no gradient"
        )

    def call(keyset, *args, **kwargs):
        original = functools.partial(replaced.call_boxed, keyset)
        return kernel(original, *args, **kwargs)

    namespace, _, name = operator.partition("::")
    with torch.library._scoped_library(namespace, "IMPL") as library:
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            # "Overriding a previously registered kernel", which is the intention.
            library.impl(name, call, key, with_keyset=True, allow_override=True)
        yield

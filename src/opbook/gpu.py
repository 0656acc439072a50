"""If the library was built without GPU kernels, raise a clear error for GPU tensors.

PyTorch for Linux from ``pip`` has CUDA's libraries and no nvcc, so a machine that has a
GPU and no CUDA toolkit gets such a build.
"""

from collections.abc import Callable
from typing import NoReturn

import torch

from opbook import toolchain

_has = torch._C._dispatch_has_kernel_for_dispatch_key
# ROCm's kernels stand under this key too. The answer is that of the build: it is asked
# before anything else can register a kernel.
HAS_KERNELS: bool = _has("opbook::rms_norm", "CUDA")
_library = torch._C._dispatch_library("IMPL", "opbook", "")


def runs_on_gpu() -> bool:
    """Whether the C++ operators run on a GPU here.

    Returns:
        True if PyTorch sees a GPU and this build has GPU kernels. Whether they were
        compiled for that very GPU, ``python -m opbook.doctor`` tells.

    Example:
        >>> import opbook
        >>> device = "cuda" if opbook.runs_on_gpu() else "cpu"
    """
    return HAS_KERNELS and torch.cuda.is_available()


def refuse_gpu_tensors(kind: str, version: str) -> list[str]:
    """Gives each operator without a GPU kernel one that raises.

    The dispatcher's own error lists dispatch keys, and does not name the cause. A
    kernel that is registered later replaces this one.

    Args:
        kind: ``"cuda"`` or ``"hip"``, for which PyTorch is built.
        version: Its ``torch.version.cuda`` or ``torch.version.hip``.

    Returns:
        The names of these operators.
    """
    # One without a CPU kernel is composed of others, which raise for it.
    on_cpu = torch._C._dispatch_get_registrations_for_dispatch_key("CPU")
    ours = sorted(name for name in on_cpu if name.startswith("opbook::"))
    names = [name for name in ours if not _has(name, "CUDA")]
    for name in names:
        _library.impl(name.partition("::")[2], "CUDA", refusal(name, kind, version))
    return names


def refusal(operator: str, kind: str, version: str) -> Callable[..., NoReturn]:
    """The kernel of an operator that has none for GPUs: it raises.

    Args:
        operator: Its name, with the namespace.
        kind: As for :func:`refuse_gpu_tensors`.
        version: As for :func:`refuse_gpu_tensors`.

    Raises:
        NotImplementedError: When the kernel is called.
    """

    def raise_error(*args, **kwargs) -> NoReturn:
        raise NotImplementedError(
            f"{operator}: opbook was built without GPU kernels, so it has none for a "
            f"tensor on a GPU. To get them, {toolchain.install(kind, version)}; then "
            f"run in opbook's repository: USE_CUDA=1 {toolchain.REBUILD}"
        )

    return raise_error


if not HAS_KERNELS:
    for _kind in ("cuda", "hip"):
        if _version := getattr(torch.version, _kind):
            refuse_gpu_tensors(_kind, _version)

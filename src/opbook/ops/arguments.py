"""What the operators ask of their arguments before PyTorch sees them."""

import torch
from torch import Tensor


def check_strided(op: str, name: str, tensor: Tensor) -> None:
    """Refuse a tensor whose elements do not lie a stride apart.

    PyTorch would refuse it too, without the argument's name. But a jagged tensor's own
    operators are found by a part of their names, so that ``opbook::rms_norm`` is taken
    for ``aten::rms_norm`` and fails on arguments that it does not have.

    Raises:
        NotImplementedError: It is sparse, jagged or of another such layout.
    """
    if tensor.layout is not torch.strided or tensor.is_nested:
        what = "nested" if tensor.is_nested else str(tensor.layout)
        raise NotImplementedError(f"{op}: {name} must be strided, but is {what}")

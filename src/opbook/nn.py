"""Modules that call the operators, for models made of ``torch.nn``."""

import math

import torch
from torch import Tensor

from opbook.ops.rms_norm import rms_norm


# [module]
class RMSNorm(torch.nn.RMSNorm):
    """:class:`torch.nn.RMSNorm`, computed by :func:`opbook.rms_norm`.

    The constructor, the parameters, ``state_dict`` and ``repr`` are PyTorch's, so a
    model or a checkpoint can go from one class to the other.

    Example:
        >>> opbook.nn.RMSNorm(2, eps=0.0)(torch.tensor([3.0, 4.0])).detach()
        tensor([0.8485, 1.1314])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalize over the last dimensions, those of ``normalized_shape``.

        Raises:
            RuntimeError: ``input`` ends with other sizes than ``normalized_shape``.
        """
        dims = len(self.normalized_shape)
        if input.shape[input.dim() - dims :] != self.normalized_shape:
            raise RuntimeError(
                "opbook.nn.RMSNorm: expected input to end with the sizes "
                f"{list(self.normalized_shape)}, but got shape {list(input.shape)}"
            )
        if dims == 1:
            return rms_norm(input, self.weight, self.eps)
        # The operator knows rows: several dimensions are one long row.
        rows = input.shape[: input.dim() - dims]
        row = math.prod(self.normalized_shape)
        weight = None if self.weight is None else self.weight.reshape(row)
        return rms_norm(input.reshape(*rows, row), weight, self.eps).view(input.shape)


# [/module]

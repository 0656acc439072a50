"""Make the norms, MLPs and blocks of a transformer call opbook's operators."""

from torch import Tensor, nn
from transformer import MLP, Block

import opbook
import opbook.nn


# [patch]
class FusedMLP(MLP):
    """The bias and GELU are added where the product of the first layer is written."""

    bypassed = (("up", nn.Linear),)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position by itself."""
        return self.down(opbook.linear_gelu(x, self.up.weight, self.up.bias))


class FusedBlock(Block):
    """The first addition and the second norm are one operator."""

    bypassed = (("norm2", nn.RMSNorm),)

    def forward(self, x: Tensor) -> Tensor:
        """Add attention, then add the MLP."""
        mixed = self.attention(self.norm1(x))
        norm = self.norm2
        normed, x = opbook.add_rms_norm(mixed, x, norm.weight, norm.eps)
        return x + self.mlp(normed)


SWAPS = {nn.RMSNorm: opbook.nn.RMSNorm, MLP: FusedMLP, Block: FusedBlock}


def patch(model: nn.Module, swaps: dict[type, type] = SWAPS) -> nn.Module:
    """Change the class of each module that has a fused one; parameters stay.

    Only exact types are changed, and only if the children that the fused class does
    not call have exact types, too: a subclass may compute something else.
    """
    for module in model.modules():
        swap = swaps.get(type(module))
        bypassed = getattr(swap, "bypassed", ())
        if swap and all(type(getattr(module, name)) is kind for name, kind in bypassed):
            module.__class__ = swap
    return model


# [/patch]

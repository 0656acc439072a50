"""Compare the loss curves of two models
=====================================

Train a model with and without your operators, and see whether a wrong gradient shows in
the loss. The three models are a transformer, the same transformer with its norms and
MLPs swapped for operators of this library, and one whose norm has a wrong gradient.

It needs torch, opbook, matplotlib for the chart, and the folder ``sources`` of opbook's
repository.

.. topics:: 94
"""

import importlib.util
import sys
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

SOURCES = Path(sys.argv[0]).resolve().parent / "sources" / "modules"
if not SOURCES.is_dir():
    print("skipped: needs the folder examples_src/sources of the repository beside it")
    sys.exit(77)
sys.path.insert(0, str(SOURCES))
from patch import patch
from transformer import Transformer, batches, train

torch.set_num_threads(1)

# %%
# The model and the patch are those of :doc:`/production/modules`.


def transformer(seed: int = 0) -> Transformer:
    """Build a small model, with the same weights for the same seed."""
    torch.manual_seed(seed)
    return Transformer(tokens=64, hidden=64, heads=4, layers=2)


class ForgetsTheRoot(torch.nn.RMSNorm):
    """A mistake: backward takes the root mean square for a constant."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalize rows."""
        scale = (input.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return input * scale.detach() * self.weight


# %%
# To know which distance between two curves is too large, train the same model twice
# more. With the rows of each batch in another order, only roundings change. With
# another seed, the model begins with other weights.

data = list(islice(batches(64, rows=16, length=32), 200))
shuffled = [batch[torch.randperm(16)] for batch in data]
mistake = patch(transformer(), {torch.nn.RMSNorm: ForgetsTheRoot})
eager = torch.tensor(train(transformer(), data))
curves = {
    "rows in another order": train(transformer(), shuffled),
    "opbook": train(patch(transformer()), data),
    "wrong gradient": train(mistake, data),
    "another seed": train(transformer(seed=1), data),
}
distances = {name: (torch.tensor(c) - eager).abs() for name, c in curves.items()}
for name, distance in distances.items():
    print(f"{name:24}last loss {curves[name][-1]:.4f}, most off {distance.max():.1e}")

# %%
# The curves on the left look alike, because the model with the wrong gradient learns
# too. Their distances to eager on the right differ: with the operators of this library,
# the distance is that of another rounding; with the wrong gradient, it is about as
# large as with another seed, or larger.

if importlib.util.find_spec("matplotlib") is None:
    print("no chart: needs matplotlib")
    sys.exit()

import matplotlib.pyplot as plt

GREY = "#808080"  # readable on white and on black
COLORS = ("#5b8db8", "#6aa36f", "#d9734e", "#a08cc0")
figure, (left, right) = plt.subplots(
    1, 2, figsize=(9, 4), facecolor="none", layout="constrained"
)
left.plot(eager, color=GREY, label="eager")
for (name, curve), color in zip(curves.items(), COLORS, strict=True):
    left.plot(curve, color=color, label=name)
    # A distance of 0 has no logarithm.
    right.semilogy(distances[name].clamp(min=1e-8), color=color)
left.set(ylabel="loss")
right.set(ylabel="distance to eager")
for axis in (left, right):
    axis.set_xlabel("step")
    axis.set_frame_on(False)
    axis.tick_params(which="both", colors=GREY)
    axis.xaxis.label.set_color(GREY)
    axis.yaxis.label.set_color(GREY)
left.legend(frameon=False, labelcolor=GREY)
plt.show()

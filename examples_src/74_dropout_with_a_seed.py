"""Drop out with a seed instead of a mask
======================================

Backward needs to know which elements were dropped. The usual way is to save a mask.
``opbook.triton.dropout`` saves the seed, one number, and draws the same mask again.

.. topics:: 25 62
"""

# %%
# Triton has to know before it is imported whether it compiles or interprets.

import importlib.util
import os
import sys

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
if importlib.util.find_spec("triton") is None:
    print("skipped: needs triton (pip install triton)")
    sys.exit(77)

from opbook.triton import dropout

# %%
# The kernel asks Philox, a function from a seed and a place to a random number. It has
# no state. So the same seed drops the same elements, now and in backward.

P, SIDE = 0.3, 64
ones = torch.ones(SIDE, SIDE, device=device)
masks = {seed: dropout(ones, P, seed) != 0 for seed in (1, 2)}
again = dropout(ones, P, 1) != 0
print("seed 1, drawn twice: the same mask is", torch.equal(masks[1], again))
both = (masks[1] & masks[2]).float().mean().item()
print(f"kept by seed 1 and by seed 2: {both:.3f}, if independent {(1 - P) ** 2:.3f}")

# %%
# How many are dropped? If each is dropped with probability p, the share over n elements
# stays within a few times sqrt(p (1 - p) / n) of it. Look at many seeds: about 1 in 20
# may lie beyond two deviations.

kept = torch.stack([dropout(ones, P, seed) != 0 for seed in range(24)]).cpu()
deviation = (P * (1 - P) / ones.numel()) ** 0.5
shares = 1 - kept.double().mean((1, 2))
off = (shares - P) / deviation
print(f"share dropped, 24 seeds: {shares.mean():.4f}, one deviation {deviation:.4f}")
print(f"beyond two: {(off.abs() > 2).sum()} seeds, the worst {off.abs().max():.1f}")
assert off.abs().max() < 5

# %%
# Neighbours must not know of each other. The correlation of each element with the one
# to its right, over all seeds, is zero within a few times 1 / sqrt(n).

centred = kept.double() - kept.double().mean()
product = (centred[..., 1:] * centred[..., :-1]).mean() / centred.square().mean()
print(f"correlation {product:+.4f}, one deviation {kept.numel() ** -0.5:.4f}")
assert abs(product) < 5 * kept.numel() ** -0.5

# %%
# Backward calls the operator again, on the gradient and with the same seed. Where the
# forward dropped an element, its gradient is zero; elsewhere it is scaled alike.

x = torch.randn(SIDE, SIDE, device=device, requires_grad=True)
y = dropout(x, P, 1)
y.sum().backward()
print("gradient has the mask of the forward:", torch.equal(x.grad, dropout(ones, P, 1)))

# %%
# What does autograd keep until then? ``saved_tensors_hooks`` sees every tensor that is
# saved. A tensor that would be alive anyway, such as the input, costs nothing more.


def saved_bytes(function, *args) -> int:
    """Bytes that a call keeps for backward."""
    found = []
    with torch.autograd.graph.saved_tensors_hooks(found.append, lambda nothing: None):
        function(*args)
    return sum(tensor.nbytes for tensor in found)


def with_a_mask(x: torch.Tensor) -> torch.Tensor:
    """Drop out by multiplying with a mask of zeros and 1 / (1 - p)."""
    return x * ((torch.rand_like(x) >= P) / (1 - P))


calls = {"x * mask": (with_a_mask, x), "F.dropout": (torch.dropout, x, P, True)}
calls["opbook.triton.dropout"] = (dropout, x, P, 1)
for name, (function, *args) in calls.items():
    share = saved_bytes(function, *args) / x.numel()
    print(f"{name:22} keeps {share:.0f} bytes for each element")
assert saved_bytes(dropout, x, P, 1) == 0

# %%
# Orange is dropped, blue is kept. In the third picture blue is where the two seeds
# agree: noise again. A pattern there would be a pattern in the training.

if importlib.util.find_spec("matplotlib") is None:
    print("no chart: needs matplotlib")
    sys.exit()

import matplotlib.pyplot as plt
from matplotlib.colors import ListedColormap

GREY = "#808080"  # readable on white and on black
COLORS = ListedColormap(["#d9734e", "#5b8db8"])
figure, axes = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained")
figure.set_facecolor("none")
pictures = {f"seed {seed} keeps": mask for seed, mask in masks.items()}
pictures["they agree on"] = masks[1] == masks[2]
for axis, (title, image) in zip(axes, pictures.items(), strict=True):
    axis.imshow(image.cpu(), cmap=COLORS, interpolation="nearest")
    axis.set_title(f"{title} {image.float().mean().item():.0%}", color=GREY)
    axis.axis("off")
plt.show()

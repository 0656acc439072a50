"""Save a seed instead of a dropout mask
=====================================

Save a seed for the backward pass of dropout, instead of a mask. The backward pass
needs to know which elements were dropped, and can draw the same mask again from the
seed.

It needs torch, triton and numpy, and matplotlib for the chart.

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
    print("skipped: needs triton (pip install triton numpy)")
    sys.exit(77)

import triton
import triton.language as tl

# %%
# ``tl.rand`` is Philox, a function from a seed and a place to a random number. It has
# no state, so the same seed drops the same elements, now and in backward.


@triton.jit(do_not_specialize=["seed"])
def dropout_kernel(input, output, p, seed, count, BLOCK: tl.constexpr):
    """Zero each element with probability `p`, scale the others by 1 / (1 - p)."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    x = tl.load(input + place, mask=inside)
    y = tl.where(tl.rand(seed, place) >= p, x / (1 - p), 0.0)
    tl.store(output + place, y, mask=inside)


@torch.library.custom_op("dropout_with_a_seed::dropout", mutates_args=())
def dropout(input: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """Zero elements at random; the same seed zeroes the same ones."""
    input = input.contiguous()
    output, count = torch.empty_like(input), input.numel()
    grid = (triton.cdiv(count, 1024),)
    dropout_kernel[grid](input, output, p, seed, count, BLOCK=1024)
    return output


# %%
# Backward is the operator once more, on the gradient and with the same seed. Autograd
# keeps two numbers.


def save(ctx, inputs, output) -> None:
    """Keep the probability and the seed."""
    _, ctx.p, ctx.seed = inputs


def backward(ctx, grad):
    """Drop the same elements of the gradient."""
    return dropout(grad, ctx.p, ctx.seed), None, None


dropout.register_autograd(backward, setup_context=save)

P, SIDE = 0.3, 64
ones = torch.ones(SIDE, SIDE, device=device)
x = torch.randn(SIDE, SIDE, device=device, requires_grad=True)
y = dropout(x, P, 1)
y.sum().backward()
same = torch.equal(x.grad, dropout(ones, P, 1))
print("the gradient has the mask of the forward:", same)
assert same

# %%
# What does autograd keep until then? ``saved_tensors_hooks`` sees every tensor that is
# saved. A tensor that would be alive anyway, such as the input, costs nothing more. On
# a GPU, PyTorch's own dropout saves one byte for each element.


def saved_bytes(function, *args) -> int:
    """Bytes that a call keeps for backward."""
    found = []
    with torch.autograd.graph.saved_tensors_hooks(found.append, lambda nothing: None):
        function(*args)
    return sum(tensor.nbytes for tensor in found)


calls = {"F.dropout": (torch.dropout, x, P, True), "with a seed": (dropout, x, P, 1)}
for name, (function, *args) in calls.items():
    share = saved_bytes(function, *args) / x.numel()
    print(f"{name:12} keeps {share:.0f} B for each element, on {device}")

# %%
# Orange is dropped, blue is kept. In the third picture blue is where the masks of two
# seeds agree: noise again. A pattern would mean that one mask depends on the other.

if importlib.util.find_spec("matplotlib") is None:
    print("no chart: needs matplotlib")
    sys.exit()

import matplotlib.pyplot as plt
from matplotlib.colors import ListedColormap

GREY = "#808080"  # readable on white and on black
COLORS = ListedColormap(["#d9734e", "#5b8db8"])
figure, axes = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained")
figure.set_facecolor("none")
masks = {seed: dropout(ones, P, seed) != 0 for seed in (1, 2)}
pictures = {f"seed {seed} keeps": mask for seed, mask in masks.items()}
pictures["they agree on"] = masks[1] == masks[2]
for axis, (title, image) in zip(axes, pictures.items(), strict=True):
    axis.imshow(image.cpu(), cmap=COLORS, interpolation="nearest")
    axis.set_title(f"{title} {image.float().mean().item():.0%}", color=GREY)
    axis.axis("off")
plt.show()

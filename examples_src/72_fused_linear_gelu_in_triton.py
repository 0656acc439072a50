"""Fuse a linear layer with GELU in Triton
=======================================

Apply GELU in the kernel of the matrix product, and save writing the product. At its
end, the kernel holds the product in fp32 registers. If it applies GELU there, the
product is never rounded, written and read again. See what that does to error and bytes.

It needs torch, triton, numpy, opbook, and matplotlib for the chart.

.. topics:: 20 25
"""

# %%
# Triton has to know before it is imported whether it compiles or interprets.

import importlib.util
import os
import sys

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
if importlib.util.find_spec("triton") is None:
    print("skipped: needs triton (pip install triton numpy)")
    sys.exit(77)

import triton
import triton.language as tl

try:
    import opbook.triton
except ImportError as error:
    print(f"skipped: needs opbook of this book's repository, on PYTHONPATH: {error}")
    sys.exit(77)

# %%
# In small: one program, one tile. ``tl.dot`` multiplies blocks of fp16 and adds up in
# fp32. Everything after it works on registers, until the last line rounds, once.


@triton.jit
def tile_kernel(input, weight, bias, output, SIDE: tl.constexpr, K: tl.constexpr):
    """GELU(input @ weight^T + bias) for a tile of SIDE x SIDE."""
    row, depth = tl.arange(0, SIDE), tl.arange(0, K)
    place = row[:, None] * K + depth[None, :]
    x, w = tl.load(input + place), tl.load(weight + place)
    z = tl.dot(x, w.T) + tl.load(bias + row).to(tl.float32)[None, :]
    y = 0.5 * z * (1 + tl.erf(z * 0.7071067811865476))
    tl.store(output + row[:, None] * SIDE + row[None, :], y.to(tl.float16))


torch.manual_seed(0)
inputs = torch.randn(64, 128), torch.randn(128, 128) / 8, torch.randn(128) / 4
x, weight, bias = (t.half().to(device) for t in inputs)
tile_kernel[(1,)](x, weight, bias, tile := x.new_empty(64, 64), SIDE=64, K=128)

# ``opbook.triton.linear_gelu`` is this with a grid, masks and a loop over K, and with
# another formula for GELU.
fused = opbook.triton.linear_gelu(x, weight, bias)
torch.testing.assert_close(fused[:, :64], tile, rtol=2**-9, atol=1e-5)
print("its first tile is the same")

# %%
# The unfused form rounds the product to fp16, before GELU. Compare both with fp64, in
# units in the last place of fp16. Half a unit is the best there is. Results next to
# zero are left out: there the sum itself cancels.

z = F.linear(x.double(), weight.double(), bias.double())
exact = F.gelu(z)
unit = 2.0 ** (exact.abs().log2().floor() - 10).clamp(min=-24)
results = {"unfused": F.gelu(F.linear(x, weight, bias)), "fused": fused}
# The formula of ``tile_kernel`` alone, on the exact product:
results["formula"] = (0.5 * z.float() * (1 + (z.float() * 0.5**0.5).erf())).half()
errors = {name: ((y.double() - exact) / unit).abs() for name, y in results.items()}
for name, error in errors.items():
    right, left = error[z > 0.1].max(), error[z < -0.1].max()
    print(f"{name:8} largest error for z > 0.1: {right:.2f}, z < -0.1: {left:.2f}")

# %%
# For negative z GELU falls off fast, so a rounding of z becomes a larger one of the
# result. The formula has an error of its own: for negative z, 1 + erf(u) is 1 minus
# almost 1, and the digits that cancel are lost. For 16-bit results the package computes
# the tail of the normal distribution instead, from a polynomial of its logarithm, which
# loses none of them and takes fewer than half of the instructions.
#
# Now the bytes. A dispatch mode sees every operator call. Add up the tensors that each
# one reads and writes; a view moves nothing.


class Bytes(TorchDispatchMode):
    """Count the bytes of each operator's inputs and outputs."""

    moved = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if not function.is_view:
            self.moved += sum(getattr(value, "nbytes", 0) for value in (*args, result))
        return result


with Bytes() as of_fused:
    opbook.triton.linear_gelu(x, weight, bias)
with Bytes() as of_unfused:
    F.gelu(F.linear(x, weight, bias))
print(f"bytes: {of_fused.moved} fused, {of_unfused.moved} not; product {fused.nbytes}")
assert of_unfused.moved - of_fused.moved == 2 * fused.nbytes

# %%
# Each point is an element of the result, and the line is half a unit.
if importlib.util.find_spec("matplotlib") is None:
    print("no chart: needs matplotlib")
    sys.exit()

import matplotlib.pyplot as plt

GREY = "#808080"  # readable on white and on black
figure, axis = plt.subplots(figsize=(8, 4), facecolor="none", layout="constrained")
for name, color in {"unfused": "#d9734e", "fused": "#5b8db8"}.items():
    points = (values.flatten().cpu() for values in (z, errors[name]))
    axis.plot(*points, "o", ms=2.5, color=color, label=name)
axis.axhline(0.5, color=GREY, linewidth=0.8)
axis.set_xlabel("z, the product before GELU", color=GREY)
axis.set_ylabel("error, units in the last place", color=GREY)
axis.tick_params(colors=GREY)
axis.set(frame_on=False)
axis.legend(frameon=False, labelcolor=GREY, markerscale=3)
plt.show()

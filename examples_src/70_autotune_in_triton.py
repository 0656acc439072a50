"""Tune the blocks of a Triton kernel
==================================

Let Triton's tuner choose the size of a block, and see what that size changes. A block
size that fills the GPU for one shape leaves it idle for another, so the tuner times a
list of configs for each shape. A config changes the number of tiles, and the work
that the mask throws away.

It needs torch, triton, numpy, opbook, and matplotlib for the chart.

.. topics:: 27
"""

# %%
# Triton has to know before it is imported whether it compiles or interprets.

import importlib.util
import os
import sys
from functools import partial

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
if importlib.util.find_spec("triton") is None:
    print("skipped: needs triton (pip install triton numpy)")
    sys.exit(77)

import triton

try:
    from opbook.triton.linear import (
        CONFIGS,
        bucket_of,
        grid_of,
        linear_kernel,
        prepare_tma,
    )
except ImportError as error:
    print(f"skipped: needs opbook of this book's repository, on PYTHONPATH: {error}")
    sys.exit(77)

# %%
# The kernel computes ``a @ b.T`` tile by tile. A config is the size of the tile,
# BLOCK_M x BLOCK_N, how much of K a step of the loop takes, and how many warps and
# stages work on it.

for config in CONFIGS:
    print(config.kwargs, config.num_warps, "warps,", config.num_stages, "stages")

# %%
# The grid is a function of the config, so Triton asks it after choosing one. That is
# the place to count tiles. ``linear_kernel`` is the tuner, and ``linear_kernel.fn`` the
# kernel below it, which takes a config as arguments.


def product(kernel, a: torch.Tensor, b: torch.Tensor, **config) -> tuple:
    """Compute ``a @ b.T``; return it and the number of tiles."""
    (m, k), n = a.shape, b.shape[0]
    output, tiles, tma = a.new_empty(m, n), [], prepare_tma(a, b)

    def grid(chosen):
        down = triton.cdiv(m, chosen["BLOCK_M"])
        tiles.append(down * triton.cdiv(n, chosen["BLOCK_N"]))
        return grid_of(a, b, tma)(chosen)

    arguments = (a, b, None, output, m, bucket_of(m), n, k, *a.stride(), *b.stride())
    kernel[grid](*arguments, HAS_BIAS=False, GELU=False, SPLITS=1, TMA=tma, **config)
    return output, tiles[-1]


# %%
# Few rows, as when a model writes one word after another; sizes that no block divides;
# and a large matrix, all smaller without a GPU. Every config gives the same product.
# How many tiles does it take, and how much of their work lies inside the matrix?

SIZES = (16, 512, 64), (200, 300, 64), (512, 512, 64)
if device == "cuda":
    SIZES = (16, 4096, 4096), (1000, 1000, 4096), (8192, 4096, 4096)
names = ["x".join(map(str, config.kwargs.values())) for config in CONFIGS]
inside, times = {}, {}
for shape, (m, n, k) in zip(("few rows", "ragged", "large"), SIZES, strict=True):
    a, b = torch.randn(m, k, device=device), torch.randn(n, k, device=device)
    a, b = (a / k**0.5).half(), b.half()
    expected, best = a @ b.t(), ""
    if device == "cuda":
        product(linear_kernel, a, b)  # tunes
        best = names[CONFIGS.index(linear_kernel.best_config)]
    print(f"\n{shape}, {m} x {n} x {k}")
    for name, config in zip(names, CONFIGS, strict=True):
        options = config.all_kwargs()
        result, tiles = product(linear_kernel.fn, a, b, **options)
        torch.testing.assert_close(result, expected, rtol=2**-9, atol=1e-2)
        tile = config.kwargs["BLOCK_M"] * config.kwargs["BLOCK_N"]
        inside.setdefault(shape, []).append(m * n / (tiles * tile))
        row = f"{name:12} {tiles:5} tiles, {inside[shape][-1]:4.0%} inside"
        if device == "cuda":
            run = partial(product, linear_kernel.fn, a, b, **options)
            milliseconds = triton.testing.do_bench(run, return_mode="median")
            times.setdefault(shape, []).append(1000 * milliseconds)
            row += f", {1000 * milliseconds:7.1f} us" + " chosen" * (name == best)
        print(row)

# %%
# A GPU has many processors, the H200 132 of them, and each works on a few tiles at a
# time. Large tiles read less, since a row of ``a`` serves more columns. But there are
# few, and with few rows most of a tile is outside. So the tuner has to measure. The
# tuner chose by a clock of its own, before these times were taken: what it chose need
# not be the fastest of the list. It times only the configs that suit the number of
# rows, which a function of the package picks (``prune_configs_by``). The interpreter
# has no clock: there the package gives the tuner a single config.

print("the tuner here has", len(linear_kernel.configs), "of", len(CONFIGS), "configs")
if importlib.util.find_spec("matplotlib") is None:
    print("no chart: needs matplotlib")
    sys.exit()

import matplotlib.pyplot as plt

GREY = "#808080"  # readable on white and on black
figure, axis = plt.subplots(figsize=(8, 4), facecolor="none", layout="constrained")
colors = ("#5b8db8", "#4c9f70", "#d9734e")
for place, (shape, values) in enumerate((times or inside).items()):
    where = [number + 0.27 * (place - 1) for number in range(len(names))]
    bars = axis.bar(where, values, 0.25, color=colors[place], label=shape)
    axis.bar_label(bars, fmt="{:.0f}" if times else "{:.0%}", padding=2, color=GREY)
axis.set_xticks(range(len(names)), names)
axis.set_ylabel("microseconds" if times else "computed inside the matrix", color=GREY)
axis.set(frame_on=False, yscale="log" if times else "linear", yticks=[])
axis.tick_params(length=0, labelcolor=GREY)
figure.legend(frameon=False, labelcolor=GREY, loc="outside upper center", ncols=3)
plt.show()

"""The kernels in Gluon, the language below Triton, where you choose the layouts."""

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

BLOCK = 1024


@gluon.jit
def _places(count, BLOCK: gl.constexpr):
    # Each of 32 lanes in 4 warps has 4 neighbours, 16 bytes, and repeats until BLOCK.
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    place = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    return place, place < count


@gluon.jit
def forward_kernel(x, y, count, BLOCK: gl.constexpr):
    """Compute one block of x * sigmoid(x)."""
    place, there = _places(count, BLOCK)
    value = gl.load(x + place, mask=there)
    gl.store(y + place, value / (1 + gl.exp(-value)), mask=there)


@gluon.jit
def backward_kernel(grad, x, grad_x, count, BLOCK: gl.constexpr):
    """Compute one block of the gradient."""
    place, there = _places(count, BLOCK)
    value = gl.load(x + place, mask=there)
    s = 1 / (1 + gl.exp(-value))
    slope = s * (1 + value * (1 - s))
    gl.store(grad_x + place, gl.load(grad + place, mask=there) * slope, mask=there)


def forward(x, y):
    """Write x * sigmoid(x) to y."""
    grid = (triton.cdiv(x.numel(), BLOCK),)
    forward_kernel[grid](x, y, x.numel(), BLOCK=BLOCK)


def backward(grad, x, grad_x):
    """Write the gradient of x to grad_x."""
    grid = (triton.cdiv(x.numel(), BLOCK),)
    backward_kernel[grid](grad, x, grad_x, x.numel(), BLOCK=BLOCK)

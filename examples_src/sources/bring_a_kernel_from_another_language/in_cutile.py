"""The kernels in cuTile, where a block computes whole tiles, without threads."""

import cuda.tile as ct
import torch

ELEMENTS = 1024


@ct.kernel
def forward_kernel(x, y):
    """Compute one tile of x * sigmoid(x); what lies past the end is not written."""
    tile = (ct.bid(0),)
    value = ct.load(x, tile, (ELEMENTS,))
    ct.store(y, tile, value / (1 + ct.exp(-value)))


@ct.kernel
def backward_kernel(grad, x, grad_x):
    """Compute one tile of the gradient."""
    tile = (ct.bid(0),)
    value = ct.load(x, tile, (ELEMENTS,))
    s = 1 / (1 + ct.exp(-value))
    slope = s * (1 + value * (1 - s))
    ct.store(grad_x, tile, ct.load(grad, tile, (ELEMENTS,)) * slope)


def _launch(kernel, *tensors):
    flat = tuple(tensor.view(-1) for tensor in tensors)
    grid = (ct.cdiv(flat[0].numel(), ELEMENTS),)
    ct.launch(torch.cuda.current_stream(), grid, kernel, flat)


def forward(x, y):
    """Write x * sigmoid(x) to y."""
    _launch(forward_kernel, x, y)


def backward(grad, x, grad_x):
    """Write the gradient of x to grad_x."""
    _launch(backward_kernel, grad, x, grad_x)

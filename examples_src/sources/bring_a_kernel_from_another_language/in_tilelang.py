"""The kernels in TileLang, which compiles loops over tiles with TVM and nvcc."""

import tilelang
import tilelang.language as T

ELEMENTS = 1024


@tilelang.jit
def _forward(x, y):
    count = T.dynamic("count")
    x: T.Tensor((count,), T.float32)
    y: T.Tensor((count,), T.float32)
    with T.Kernel(T.ceildiv(count, ELEMENTS), threads=128) as block:
        for i in T.Parallel(ELEMENTS):
            place = block * ELEMENTS + i
            if place < count:
                y[place] = x[place] / (1 + T.exp(-x[place]))


@tilelang.jit
def _backward(grad, x, grad_x):
    count = T.dynamic("count")
    grad: T.Tensor((count,), T.float32)
    x: T.Tensor((count,), T.float32)
    grad_x: T.Tensor((count,), T.float32)
    with T.Kernel(T.ceildiv(count, ELEMENTS), threads=128) as block:
        for i in T.Parallel(ELEMENTS):
            place = block * ELEMENTS + i
            if place < count:
                s = 1 / (1 + T.exp(-x[place]))
                grad_x[place] = grad[place] * s * (1 + x[place] * (1 - s))


def forward(x, y):
    """Write x * sigmoid(x) to y."""
    _forward(x.view(-1), y.view(-1))


def backward(grad, x, grad_x):
    """Write the gradient of x to grad_x."""
    _backward(grad.view(-1), x.view(-1), grad_x.view(-1))

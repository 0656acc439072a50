"""The kernels in the CuTe DSL, which compiles Python for a thread, without nvcc."""

import functools

import cutlass
import torch  # noqa: F401  the tensors that these kernels take
from cuda.bindings.driver import CUstream
from cutlass import cute
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

THREADS = 256


@cute.kernel
def _forward_kernel(x: cute.Tensor, y: cute.Tensor):
    block, thread = cute.arch.block_idx()[0], cute.arch.thread_idx()[0]
    i = block * THREADS + thread
    if i < x.shape[0]:
        y[i] = x[i] / (1 + cute.math.exp(-x[i]))


@cute.kernel
def _backward_kernel(grad: cute.Tensor, x: cute.Tensor, grad_x: cute.Tensor):
    block, thread = cute.arch.block_idx()[0], cute.arch.thread_idx()[0]
    i = block * THREADS + thread
    if i < x.shape[0]:
        s = 1 / (1 + cute.math.exp(-x[i]))
        grad_x[i] = grad[i] * s * (1 + x[i] * (1 - s))


@cute.jit
def _launch_forward(x: cute.Tensor, y: cute.Tensor, stream: CUstream):
    grid = (cute.ceil_div(x.shape[0], THREADS), 1, 1)
    _forward_kernel(x, y).launch(grid=grid, block=(THREADS, 1, 1), stream=stream)


@cute.jit
def _launch_backward(
    grad: cute.Tensor, x: cute.Tensor, grad_x: cute.Tensor, stream: CUstream
):
    grid = (cute.ceil_div(x.shape[0], THREADS), 1, 1)
    _backward_kernel(grad, x, grad_x).launch(
        grid=grid, block=(THREADS, 1, 1), stream=stream
    )


@functools.cache
def _compiled(launch, tensors):
    """For any number of elements; takes PyTorch's tensors and current stream."""
    count = cute.sym_int()
    fake = [make_fake_compact_tensor(cutlass.Float32, (count,)) for _ in range(tensors)]
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(launch, *fake, stream, options="--enable-tvm-ffi")


def _launch(launch, *tensors):
    _compiled(launch, len(tensors))(*(tensor.view(-1) for tensor in tensors))


def forward(x, y):
    """Write x * sigmoid(x) to y."""
    _launch(_launch_forward, x, y)


def backward(grad, x, grad_x):
    """Write the gradient of x to grad_x."""
    _launch(_launch_backward, grad, x, grad_x)

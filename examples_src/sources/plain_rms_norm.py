"""Compare the plain kernels of plain_rms_norm.cu with eager PyTorch and the library."""

import tempfile
from pathlib import Path

import nvcc
import speed
import torch
import torch.nn.functional as F

import opbook

EPS = 1e-6
# Names of C++ hold the types of the arguments: these are the instances for bf16.
folder = Path(tempfile.mkdtemp())
library = nvcc.library(Path(__file__).with_suffix(".cu").resolve(), folder)
launchers = {
    name.partition("I")[0]: launcher
    for name, launcher in nvcc.launchers(library).items()
    if "BFloat16" in name
}


def forward(x, weight):
    """Launch the plain forward kernel."""
    y, rrms = torch.empty_like(x), torch.empty(len(x), device=x.device)
    stream = torch.cuda.current_stream().cuda_stream
    launchers["plain_rms_norm"](x, weight, y, rrms, *x.shape, EPS, stream=stream)
    return y, rrms


def backward(grad, x, weight, rrms):
    """Launch the two plain kernels of the gradients."""
    grads = torch.empty_like(x), torch.empty_like(weight)
    stream = torch.cuda.current_stream().cuda_stream
    launchers["plain_gradients"](grad, x, weight, rrms, *grads, *x.shape, stream=stream)
    return grads


def contenders(shape):
    """The calls to time, after a comparison of their results."""
    x, grad = torch.randn(2, *shape, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(shape[-1:], device="cuda", dtype=torch.bfloat16)
    leaves = x.clone().requires_grad_(), weight.clone().requires_grad_()
    expected = F.rms_norm(leaves[0], shape[-1:], leaves[1], EPS)
    y, rrms = forward(x, weight)
    torch.testing.assert_close(y, expected, rtol=2**-7, atol=1e-5)
    for ours, eager in zip(
        backward(grad, x, weight, rrms),
        torch.autograd.grad(expected, leaves, grad),
        strict=True,
    ):
        error = (ours.float() - eager.float()).norm() / eager.float().norm()
        if not error < 2**-7:
            raise ValueError(f"{shape}: the gradient is off by {error:.1e}")
    call = torch.ops.opbook.rms_norm_backward
    return {
        "forward, plain": lambda: forward(x, weight),
        "forward, library": lambda: opbook.rms_norm(x, weight, EPS),
        "gradients, plain": lambda: backward(grad, x, weight, rrms),
        "gradients, library": lambda: call(grad, x, weight, rrms, True, True),
    }


print(torch.cuda.get_device_name(), "bf16, microseconds, medians in one run")
print(f"{'rows x hidden':16}", *(f"{name:>19}" for name in contenders((64, 64))))
for shape in ((256, 4096), (16384, 4096), (65536, 1024)):
    times = speed.medians(contenders(shape))
    row = f"{shape[0]} x {shape[1]}"
    print(f"{row:16}", *(f"{time:19.1f}" for time in times.values()))

"""profiled::rms_norm: an operator with one Triton kernel, for the profilers."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def rms_norm_kernel(x, weight, y, columns, eps, WIDTH: tl.constexpr):
    """Normalize the row of this program, which keeps it in registers."""
    i = tl.arange(0, WIDTH)
    inside = i < columns
    at = tl.program_id(0).to(tl.int64) * columns + i
    values = tl.load(x + at, inside, 0.0).to(tl.float32)
    r = tl.rsqrt(tl.sum(values * values) / columns + eps)
    scale = tl.load(weight + i, inside, 0.0).to(tl.float32)
    tl.store(y + at, values * r * scale, inside)


@torch.library.custom_op("profiled::rms_norm", mutates_args=())
def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Normalize contiguous rows."""
    y, (rows, columns) = torch.empty_like(x), x.shape
    width = triton.next_power_of_2(columns)
    rms_norm_kernel[rows,](x, weight, y, columns, eps, WIDTH=width, num_warps=8)
    return y

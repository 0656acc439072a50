"""RMSNorm and its gradients in Triton; a program has a whole row in registers."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def forward_kernel(x, weight, y, rrms, columns, eps, WIDTH: tl.constexpr):
    """Normalize one row."""
    i = tl.arange(0, WIDTH)
    inside = i < columns
    at = tl.program_id(0).to(tl.int64) * columns + i
    values = tl.load(x + at, inside, 0.0).to(tl.float32)
    r = tl.rsqrt(tl.sum(values * values) / columns + eps)
    scale = tl.load(weight + i, inside, 0.0).to(tl.float32)
    tl.store(y + at, values * r * scale, inside)
    tl.store(rrms + tl.program_id(0), r)


@triton.jit
def backward_kernel(
    grad, x, weight, rrms, grad_x, sums, rows, columns, WIDTH: tl.constexpr
):
    """Gradients of every n-th row, and the weight's gradient summed over these rows."""
    i = tl.arange(0, WIDTH)
    inside = i < columns
    total = tl.zeros([WIDTH], tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        at = tl.cast(row, tl.int64) * columns + i
        r = tl.load(rrms + row)
        normed = tl.load(x + at, inside, 0.0).to(tl.float32) * r
        incoming = tl.load(grad + at, inside, 0.0).to(tl.float32)
        total += incoming * normed
        scaled = incoming * tl.load(weight + i, inside, 0.0).to(tl.float32)
        mean = tl.sum(scaled * normed) / columns
        tl.store(grad_x + at, r * (scaled - normed * mean), inside)
    tl.store(sums + tl.program_id(0) * columns + i, total, inside)


def shape_of(x: Tensor) -> tuple[int, int, dict]:
    """Rows, columns, and how to launch a kernel on them."""
    columns = x.shape[-1]
    width = triton.next_power_of_2(columns)
    options = {"WIDTH": width, "num_warps": min(max(width // 512, 1), 16)}
    return x.numel() // columns, columns, options


def forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """One program a row."""
    x = x.contiguous()
    rows, columns, options = shape_of(x)
    y, rrms = torch.empty_like(x), x.new_empty(x.shape[:-1], dtype=torch.float32)
    forward_kernel[rows,](x, weight, y, rrms, columns, eps, **options)
    return y, rrms


def backward(
    grad: Tensor, x: Tensor, weight: Tensor, rrms: Tensor
) -> tuple[Tensor, Tensor]:
    """As many programs as the GPU holds at once; their sums are added by PyTorch."""
    grad, x = grad.contiguous(), x.contiguous()
    rows, columns, options = shape_of(x)
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count
    programs = min(rows, processors * (16 // options["num_warps"]))
    grad_x, sums = torch.empty_like(x), rrms.new_empty(programs, columns)
    backward_kernel[programs,](
        grad, x, weight, rrms, grad_x, sums, rows, columns, **options
    )
    return grad_x, sums.sum(0).to(weight.dtype)

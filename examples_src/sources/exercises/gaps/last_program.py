"""Launch enough programs.

The kernel is right and has its masks, but some results are missing. Find out how many
programs `double` launches, and mend it.
"""

import torch
import triton
import triton.language as tl

BLOCK = 8


@triton.jit
def double_kernel(x, y, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    tl.store(y + place, 2 * tl.load(x + place, mask=inside), mask=inside)


# [gap]
def double(x):
    y = torch.full_like(x, float("nan"))
    grid = (x.numel() // BLOCK,)
    double_kernel[grid](x, y, x.numel(), BLOCK=BLOCK)
    return y


# [/gap]

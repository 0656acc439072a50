"""Write no memory past the end of the output.

Each program of the kernel takes a block of 8 elements. The last block is often larger
than what is left, and the output's neighbours in memory change. Mend the kernel.
"""

import triton
import triton.language as tl


# [gap]
@triton.jit
def relu_kernel(x, y, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + place, mask=place < count, other=0.0)
    tl.store(y + place, tl.where(values < 0, 0.0, values))


# [/gap]


def relu(x, y):
    """Fill y with the positive numbers of x; both are contiguous."""
    relu_kernel[(triton.cdiv(x.numel(), 8),)](x, y, x.numel(), BLOCK=8)

"""Give a masked load the right value for a maximum.

A load with a mask puts `other` where it reads nothing. The kernel finds the maximum of
rows of positive numbers, and is wrong for some rows of negative ones. Mend it.
"""

import torch
import triton
import triton.language as tl


# [gap]
@triton.jit
def max_kernel(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    place = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + place, mask=place < columns, other=0.0)
    tl.store(y + row, tl.max(values, axis=0))


# [/gap]


def row_max(x):
    """The largest number of each row of a contiguous fp32 matrix."""
    rows, columns = x.shape
    y = torch.empty(rows)
    max_kernel[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
    return y

"""Finds where results depend on the batch, and a sum that honours PyTorch's setting."""

import os
from collections.abc import Callable

import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import triton
import triton.language as tl


# [changes]
def changes(call: Callable[[Tensor], Tensor], x: Tensor) -> list[int]:
    """Return the batch sizes that change the bits of some row."""
    among_all, found = call(x), []
    for size in (1, 2, 3, 5, 8):
        whole = len(x) // size * size
        pieces = zip(x[:whole].split(size), among_all[:whole].split(size), strict=True)
        # A copy: a slice can begin at an address that is aligned otherwise.
        if not all(torch.equal(call(rows.clone()), same) for rows, same in pieces):
            found.append(size)
    return found


# [/changes]


# [kernel]
@triton.jit
def column_sum_kernel(
    x,
    output,
    rows,
    columns,
    ORDERED: tl.constexpr,
    ROWS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Sum ROWS rows: into a place of this program's own, or onto the same total."""
    part = tl.program_id(0)
    row = part.to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    inside = (row < rows) & (column < columns)
    values = tl.load(x + row * columns + column, mask=inside, other=0.0)
    sums = tl.sum(values.to(tl.float32), axis=0)
    if ORDERED:
        place = output + part.to(tl.int64) * columns + column
        tl.store(place, sums, mask=column < columns)
    else:
        tl.atomic_add(output + column, sums, mask=column < columns)


# [/kernel]


# [operator]
@torch.library.custom_op("same_bits::column_sum", mutates_args=())
def column_sum(x: Tensor) -> Tensor:
    """Sum a matrix over its rows, in fp32.

    On a GPU, the additions have a fixed order only under
    ``torch.use_deterministic_algorithms(True)``, which needs more memory.
    """
    if x.dim() != 2:
        raise ValueError(f"column_sum: expected x of 2 dimensions, but got {x.dim()}")
    ordered = torch.are_deterministic_algorithms_enabled()
    x = x.contiguous()
    (rows, columns), height, width = x.shape, 64, 128
    parts = triton.cdiv(rows, height)
    if ordered:
        output = x.new_empty(parts, columns, dtype=torch.float32)
    else:
        output = x.new_zeros(columns, dtype=torch.float32)
    if x.numel() > 0:
        grid = (parts, triton.cdiv(columns, width))
        with torch.cuda.device_of(x):
            column_sum_kernel[grid](x, output, rows, columns, ordered, height, width)
    return output.sum(0) if ordered else output


@column_sum.register_fake
def _(x):
    return x.new_empty(x.shape[1:], dtype=torch.float32)


# [/operator]

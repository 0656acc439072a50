"""The words of dropout.h from Triton's philox."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def words_kernel(output, seed, low, high, BLOCK: tl.constexpr):
    """Four words for each group of elements; low and high are the offset's halves."""
    group = tl.arange(0, BLOCK)
    zero = tl.zeros([BLOCK], tl.uint32)
    x0, x1, x2, x3 = tl.philox(
        seed, zero + low.to(tl.uint32), zero + high.to(tl.uint32), group, zero
    )
    tl.store(output + group * 4, x0)
    tl.store(output + group * 4 + 1, x1)
    tl.store(output + group * 4 + 2, x2)
    tl.store(output + group * 4 + 3, x3)


def words(state: Tensor, groups: int) -> Tensor:
    """Words of the first groups of elements, as int64; groups is a power of two."""
    seed, offset = state.tolist()
    output = torch.empty(groups * 4, dtype=torch.int64, device=state.device)
    counter = offset // 4
    words_kernel[(1,)](output, seed, counter % 2**32, counter >> 32, BLOCK=groups)
    return output

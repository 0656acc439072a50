"""Dropout whose mask is a function of a seed, so that it need not be saved."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from opbook.forward_mode import register_autograd
from opbook.triton.launch import check_input, device_of, refuse_nested
from opbook.triton.names import custom_op

BLOCK = 1024


# [kernel]
# Triton compiles once more for an integer that is 1 or divisible by 16; seeds are any.
@triton.jit(do_not_specialize=["seed"])
def dropout_kernel(input, output, p, seed, count, BLOCK: tl.constexpr):
    """Zero each element with probability `p`, scale the others by 1 / (1 - p).

    The random number is Philox of the seed and of the element's place: it is the same
    whatever the grid, the block or the device.
    """
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    x = tl.load(input + place, mask=inside).to(tl.float32)
    kept = tl.rand(seed, place) >= p
    y = tl.where(kept, x / (1 - p), 0.0).to(output.dtype.element_ty)
    tl.store(output + place, y, mask=inside)


# [/kernel]


# [operator]
@custom_op("opbook_triton::dropout", mutates_args=())
def dropout(input: Tensor, p: float, seed: int) -> Tensor:
    """Zero elements at random, and scale the others by ``1 / (1 - p)``.

    The same seed zeroes the same elements. Backward calls the operator again with that
    seed, so no mask is saved.

    Args:
        input: Any shape and strides; fp16, bf16 or fp32.
        p: Probability of a zero, 0 <= p < 1.
        seed: Any signed integer of 64 bits.

    Returns:
        A contiguous tensor of ``input``'s shape and dtype.

    Raises:
        ValueError: ``p`` is not a probability below 1.
        NotImplementedError: Another dtype, a sparse or nested tensor, or forward mode.
        RuntimeError: A device that Triton does not run on here.
    """
    _check(input, p)
    input = input.contiguous()
    output = torch.empty_like(input)
    count = input.numel()
    if count > 0:
        with device_of(input):
            dropout_kernel[(triton.cdiv(count, BLOCK),)](
                input, output, p, seed, count, BLOCK=BLOCK
            )
    return output


# [/operator]


def _check(input: Tensor, p: float) -> None:
    check_input("opbook.triton.dropout", "input", input)
    if not 0 <= p < 1:
        raise ValueError(f"opbook.triton.dropout: p must be in [0, 1), but is {p}")


refuse_nested(dropout)


@dropout.register_fake
def _(input: Tensor, p: float, seed: int) -> Tensor:
    _check(input, p)
    return torch.empty_like(input, memory_format=torch.contiguous_format)


# [autograd]
def _save(ctx, inputs, output) -> None:
    _, ctx.p, ctx.seed = inputs


def _backward(ctx, grad: Tensor):
    return dropout(grad, ctx.p, ctx.seed), None, None


register_autograd("opbook_triton::dropout", _backward, setup_context=_save)
# [/autograd]

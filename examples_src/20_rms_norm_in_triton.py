"""Write RMSNorm in Triton
=======================

Write RMSNorm as a Triton kernel, and compare every number with PyTorch's. A Triton
kernel is Python that is compiled for the GPU at its first call. Without a GPU, Triton's
interpreter runs the same kernel on the CPU with NumPy, slowly.

It needs torch, triton and numpy.

.. topics:: 3 25 85
"""

# %%
# Triton has to know before it is imported whether it compiles or interprets. The
# variable must be set before that, so this comes first.

import importlib.util
import os
import sys

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
if importlib.util.find_spec("triton") is None:
    print("skipped: needs triton (pip install triton numpy)")
    sys.exit(77)

import triton
import triton.language as tl

# %%
# One program normalizes one row. Past the end of the row, the block is filled with 0,
# which adds nothing to the sum. The row is converted to fp32 before any arithmetic: the
# largest number of fp16 is 65504, less than the square of 256.


@triton.jit
def rms_norm_kernel(input, weight, output, hidden, eps, BLOCK: tl.constexpr):
    """Normalize one row of `hidden` elements, read as one block."""
    row = tl.program_id(0).to(tl.int64) * hidden  # rows * hidden can exceed 2^31
    column = tl.arange(0, BLOCK)
    inside = column < hidden
    x = tl.load(input + row + column, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    mean_square = tl.sum(x * x, axis=0) / hidden
    y = x * tl.rsqrt(mean_square + eps) * w
    tl.store(output + row + column, y.to(output.dtype.element_ty), mask=inside)


# %%
# ``custom_op`` makes a PyTorch operator of a Python function. The function checks the
# weight's shape, allocates the result and launches one program per row. ``BLOCK`` is a
# power of two because ``tl.arange`` takes no other size. An operator to ship, such as
# ``opbook.triton.rms_norm``, also checks dtypes and devices, selects the device, and
# takes rows of any length.


@torch.library.custom_op("rms_norm_in_triton::rms_norm", mutates_args=())
def rms_norm(
    input: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> torch.Tensor:
    """Divide every row by its root mean square, then scale it by `weight`."""
    row_shape = input.shape[-1:]
    if weight.shape != row_shape:
        message = f"expected weight of shape {row_shape}, but got {weight.shape}"
        raise RuntimeError(f"rms_norm_in_triton::rms_norm: {message}")
    input, weight = input.contiguous(), weight.contiguous()
    output = torch.empty_like(input)
    if output.numel() > 0:
        hidden = input.shape[-1]
        block = triton.next_power_of_2(hidden)
        grid = (output.numel() // hidden,)
        rms_norm_kernel[grid](input, weight, output, hidden, eps, BLOCK=block)
    return output


# %%
# The fake kernel tells ``torch.compile`` and ``torch.export`` the shape, dtype and
# strides of the result without running anything.


@rms_norm.register_fake
def _(input, weight, eps=1e-6):
    return torch.empty_like(input, memory_format=torch.contiguous_format)


# %%
# Compare with eager PyTorch, at sizes that fill the last block and that do not. The
# interpreter cuts bf16 results off where a GPU rounds them, so bf16 may differ by one
# unit in the last place.

tolerance = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}
for dtype, rtol in tolerance.items():
    for hidden in (1, 127, 1024):
        input = torch.randn(4, 3, hidden, device=device).to(dtype) * 100
        weight = torch.randn(hidden, device=device).to(dtype)
        output = rms_norm(input, weight)
        eager = torch.nn.functional.rms_norm(input, (hidden,), weight, 1e-6)
        torch.testing.assert_close(output, eager, rtol=rtol, atol=1e-5)
        error = (output.double() - eager.double()).abs().max().item()
        print(f"{dtype!s:15} hidden {hidden:5}  largest difference {error:.1e}")

# %%
# ``opcheck`` tests the registration: that the schema tells the truth about mutation and
# aliasing, and that the fake kernel agrees with the real one, also for strided input.

for input in (torch.randn(4, 64), torch.randn(64, 4).t(), torch.empty(0, 64)):
    args = (input.to(device), torch.randn(64, device=device))
    print(torch.library.opcheck(rms_norm, args))

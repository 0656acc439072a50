"""A kernel with a mistake, to be looked at in three ways.

Arguments: "stop" halts each program in the debugger (with TRITON_INTERPRET=1 only),
"cpu" passes tensors of the CPU, "large" passes numbers that the kernel asserts away.
"""

import sys

import torch
import triton
import triton.language as tl


# [kernel]
@triton.jit
def row_mean_kernel(input, output, count, STOP: tl.constexpr, BLOCK: tl.constexpr):
    """Mean of each row; one program a row."""
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(input + row * count + column, mask=column < count, other=0.0)
    tl.device_print("x", x)
    tl.device_assert(x < 100, "a number is too large")
    mean = tl.sum(x, axis=0) / BLOCK
    tl.store(output + row, mean)
    if STOP:
        breakpoint()


# [/kernel]


def main() -> None:
    """Compare two rows with eager PyTorch."""
    gpu = torch.cuda.is_available() and "cpu" not in sys.argv
    x = torch.arange(1.0, 7.0, device="cuda" if gpu else "cpu").view(2, 3)
    if "large" in sys.argv:
        x *= 100
    output = torch.empty_like(x[:, 0])
    row_mean_kernel[(2,)](x, output, 3, STOP="stop" in sys.argv, BLOCK=4, num_warps=1)
    print("kernel:", output.tolist(), "eager:", x.mean(1).tolist())


if __name__ == "__main__":
    main()

"""What every Triton operator does before it launches: checks, device, block size."""

import contextlib
from collections.abc import Sequence

import torch
import triton
from torch import Tensor
from torch.library import CustomOpDef

from opbook.checks import check_strided

# A Python float reaches a Triton kernel as fp32, which would round the numbers that go
# with an fp64 tensor. An annotation, `tl.float64`, keeps all digits when compiled, but
# the interpreter ignores it. So fp64 is refused, by name.
FLOATING = (torch.float16, torch.bfloat16, torch.float32)
# Fixed when Triton is imported: the same kernels, compiled or interpreted.
INTERPRETED = triton.knobs.runtime.interpret
# A kernel keeps several blocks of this size in registers. With twice as many elements,
# that of softmax spills on an H100.
MAX_BLOCK = 16384
library = torch.library.Library("opbook_triton", "IMPL")


def check_input(op: str, name: str, value: Tensor) -> None:
    """Refuse a tensor that the kernel cannot read.

    Raises:
        TypeError: It is no tensor.
        NotImplementedError: It is sparse or nested, or its dtype is not a floating one
            that the kernels know.
        RuntimeError: It is on a device that Triton does not run on here.
    """
    check_tensor(op, name, value)
    if value.dtype not in FLOATING:
        raise NotImplementedError(
            f"{op}: {name} must be fp16, bf16 or fp32, but got {value.dtype}"
        )
    if value.device.type not in ("cuda", "meta") and not INTERPRETED:
        raise RuntimeError(
            f"{op}: {name} must be on a GPU, but is on {value.device} "
            "(set TRITON_INTERPRET=1 before triton is imported to run on the CPU)"
        )


def check_like(
    op: str,
    name: str,
    value: Tensor,
    input: Tensor,
    shape: Sequence[int],
    dtype: torch.dtype | None = None,
) -> None:
    """Refuse a second tensor whose shape, device or dtype does not fit the input.

    Raises:
        TypeError: It is no tensor.
        NotImplementedError: It is sparse or nested.
        RuntimeError: With the operator, the argument, and both values.
    """
    check_tensor(op, name, value)
    if list(value.shape) != list(shape):
        raise RuntimeError(
            f"{op}: expected {name} of shape {list(shape)}, but got {list(value.shape)}"
        )
    if value.device != input.device:
        raise RuntimeError(
            f"{op}: expected {name} on {input.device}, but got {value.device}"
        )
    if dtype is not None and value.dtype != dtype:
        raise RuntimeError(f"{op}: expected {name} of {dtype}, but got {value.dtype}")


def check_tensor(op: str, name: str, value) -> None:
    """Refuse what is no tensor, or a tensor without strides."""
    if not isinstance(value, Tensor):
        kind = type(value).__name__
        raise TypeError(f"{op}: {name} must be a Tensor, but got {kind}")
    check_strided(op, name, value)


def refuse_nested(op: CustomOpDef) -> None:
    """Let the operator's own checks refuse a nested tensor, with the argument's name.

    Without this the checks never see it: PyTorch finds no kernel, and says only that.
    """
    function, key = op._init_fn, "AutogradNestedTensor"
    library.impl(op._opoverload, function, key, allow_override=True)


# [device]
def device_of(input: Tensor) -> contextlib.AbstractContextManager:
    """Make the tensor's GPU current: Triton launches on the current one."""
    number = input.get_device()  # what PyTorch looks up fastest; -1 on the CPU
    return torch.cuda.device(number) if number >= 0 else contextlib.nullcontext()


# [/device]


def rows_of(input: Tensor) -> tuple[int, int]:
    """Number of rows and their length: a row is the last dimension."""
    length = input.shape[-1]
    return (input.numel() // length if length else 0), length


def block_of(length: int) -> int:
    """Elements a program takes at once; ``tl.arange`` needs a power of two."""
    return min(1 << max(length - 1, 0).bit_length(), MAX_BLOCK)


def warps_of(block: int) -> int:
    """Warps for a block: one for 512 elements, until the block has 1024 threads."""
    most = 16 if torch.version.hip else 32  # AMD's data center chips: warps of 64
    return max(1, min(most, block // 512))

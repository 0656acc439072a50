"""Operands for kernels over raw pointers, and how to compare their results."""

import pytest
import torch

from eager import TOLERANCES

OTHER_HALF = pytest.param(torch.bfloat16, marks=pytest.mark.all)
DTYPES = (torch.float16, OTHER_HALF, torch.float32, torch.float64)
# A tail of a vector, of a warp of 32 and of 64, of a block, and none.
HIDDEN = (1, 31, 33, 127, 128, 1025, 4096)
# A part of a warp, a warp, and two a row; a block's last rows are behind the last one.
SHORT = [(515, 8), (557, 24), (556, 200), (513, 256), (515, 520), (263, 5), (259, 33)]


def not_written(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Memory for a result: what a kernel leaves out stays NaN."""
    return torch.full(shape, torch.nan, dtype=dtype)


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that sums run in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def wide(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """In fp64."""
    return None if tensor is None else tensor.double()


def weights(hidden: int, dtype: torch.dtype) -> tuple[torch.Tensor | None, ...]:
    """None, one of the input's dtype, and one of the dtype that sums run in."""
    weight = torch.randn(hidden)
    return None, weight.to(dtype), weight.to(sum_dtype(dtype))


ROWS = {
    "not_aligned": lambda: torch.randn(3 * 128 + 1).half()[1:].view(3, 128),
    "padded": lambda: torch.randn(3, 131).half()[:, :128],
    "padded_and_aligned": lambda: torch.randn(3, 136).half()[:, :128],
    "padded_with_a_tail": lambda: torch.randn(3, 136).half()[:, :127],
    "one_row_with_a_tail": lambda: torch.randn(1, 127).half(),
    "expanded": lambda: torch.randn(1, 128).half().expand(3, 128),
}


def far_apart(hidden: int = 128) -> torch.Tensor:
    """Two rows, 2^31 elements apart. Only the pages that are touched take memory."""
    memory = torch.empty(2**31 + hidden, dtype=torch.half)
    return memory.as_strided((2, hidden), (2**31, 1)).copy_(torch.randn(2, hidden))


def assert_close_to_exact(actual: torch.Tensor, exact: torch.Tensor) -> None:
    """Compare sums of terms that cancel: the error is that of the largest one."""
    rtol, atol = TOLERANCES[actual.dtype]
    atol = max(4 * rtol * exact.abs().max().item(), atol)
    torch.testing.assert_close(actual.double(), exact, rtol=4 * rtol, atol=atol)

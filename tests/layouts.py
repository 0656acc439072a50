"""Tensors of one shape family in every memory layout an operator meets."""

import pytest
import torch


def layouts(device: str, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """Name to tensor: contiguous, transposed, sliced, expanded, offset, empty, ..."""

    def randn(*shape):
        return torch.randn(shape, device=device, dtype=dtype)

    return {
        "contiguous": randn(6, 40),
        "one_dimension": randn(40),
        "one_row": randn(1, 40),
        "transposed": randn(40, 6).t(),
        "swapped_leading": randn(3, 2, 40).transpose(0, 1),
        "sliced_rows": randn(12, 40)[::2],
        "sliced_hidden": randn(6, 80)[:, ::2],
        "padded_rows": randn(6, 48)[:, :40],
        "storage_offset": randn(6 * 40 + 1)[1:].view(6, 40),
        "expanded_rows": randn(1, 40).expand(6, 40),
        "expanded_hidden": randn(6, 1).expand(6, 40),
        "channels_last": randn(2, 3, 4, 8).to(memory_format=torch.channels_last),
        "flipped": randn(6, 40).flip(0),
        "empty_rows": randn(0, 40),
        "empty_hidden": randn(6, 0),
    }


LAYOUTS = tuple(layouts("cpu"))
# For tests that take half a second: one of each kind, and the others with --all.
KINDS = ("contiguous", "transposed", "channels_last", "expanded_rows", "empty_rows")
FEW_LAYOUTS = [
    pytest.param(name, marks=() if name in KINDS else pytest.mark.all)
    for name in LAYOUTS
]

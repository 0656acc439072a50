"""Write the keys and values of sequences of different lengths into a paged cache."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op


# [kernel]
@triton.jit(do_not_specialize=["batch"])
def write_kernel(
    keys, values, key_cache, value_cache, starts, pages, written,
    batch, pages_stride, token_size,
    PAGE: tl.constexpr, BATCH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy one token's key and value to its place in the cache."""
    token = tl.program_id(0).to(tl.int64)
    # The sequence of a token: the last one that starts at it or before.
    sequence = tl.arange(0, BATCH)
    begins = tl.load(starts + sequence, mask=sequence < batch, other=2**31 - 1)
    mine = tl.sum((begins <= token).to(tl.int32), axis=0) - 1
    position = token - tl.load(starts + mine) + tl.load(written + mine)
    page = tl.load(pages + mine * pages_stride + position // PAGE).to(tl.int64)
    slot = page * PAGE + position % PAGE
    element = tl.arange(0, BLOCK)
    inside = element < token_size
    source, target = token * token_size + element, slot * token_size + element
    tl.store(key_cache + target, tl.load(keys + source, mask=inside), mask=inside)
    tl.store(value_cache + target, tl.load(values + source, mask=inside), mask=inside)


# [/kernel]


def launch(keys, values, key_cache, value_cache, starts, pages, written) -> None:
    """One program for each token."""
    tokens, heads, size = keys.shape
    batch = written.shape[0]
    if tokens > 0:
        write_kernel[(tokens,)](
            keys, values, key_cache, value_cache, starts, pages, written,
            batch, pages.stride(0), heads * size,
            PAGE=key_cache.shape[1],
            BATCH=triton.next_power_of_2(batch),
            BLOCK=triton.next_power_of_2(heads * size),
        )  # fmt: skip


# [operator]
@custom_op("paged::write_", mutates_args=("key_cache", "value_cache"))
def write_(
    keys: Tensor,
    values: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    starts: Tensor,
    pages: Tensor,
    written: Tensor,
) -> None:
    """Append the tokens of each sequence to its pages.

    Args:
        keys: ``[tokens, heads, size]``, the sequences one after the other.
        values: Like ``keys``.
        key_cache: ``[all pages, page, heads, size]``, contiguous; written to.
        value_cache: Like ``key_cache``; written to.
        starts: ``[batch + 1]``, int32: where each sequence starts in ``keys``.
        pages: ``[batch, most pages]``, int32: the numbers of each sequence's pages.
        written: ``[batch]``, int32: tokens that each sequence has in the cache.
    """
    _check(keys, values, key_cache, value_cache, starts, pages, written)
    launch(
        keys.contiguous(),
        values.contiguous(),
        key_cache,
        value_cache,
        starts,
        pages.contiguous(),
        written,
    )


@write_.register_fake
def _(keys, values, key_cache, value_cache, starts, pages, written):
    _check(keys, values, key_cache, value_cache, starts, pages, written)


# [/operator]


def _check(keys, values, key_cache, value_cache, starts, pages, written) -> None:
    """Refuse shapes that do not fit; lengths and page numbers stay on the GPU."""
    for name, tensor, like, dims in (
        ("values", values, keys, keys.shape),
        ("key_cache", key_cache, keys, (*key_cache.shape[:2], *keys.shape[1:])),
        ("value_cache", value_cache, keys, key_cache.shape),
    ):
        torch._check(
            tensor.shape == torch.Size(dims) and tensor.dtype == like.dtype,
            lambda name=name, tensor=tensor, dims=dims: (
                f"paged::write_: expected {name} of shape {list(dims)} and "
                f"{keys.dtype}, but got {list(tensor.shape)} and {tensor.dtype}"
            ),
        )
    torch._check(
        key_cache.is_contiguous() and value_cache.is_contiguous(),
        lambda: "paged::write_: expected contiguous caches",
    )
    batch = written.shape[0]
    torch._check(
        starts.shape[0] == batch + 1 and pages.shape[0] == batch,
        lambda: (
            f"paged::write_: expected starts of {batch + 1} and pages of {batch} "
            f"sequences, but got {starts.shape[0]} and {pages.shape[0]}"
        ),
    )


@custom_op("paged::write_in_secret", mutates_args=())
def write_in_secret(
    keys: Tensor,
    values: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    starts: Tensor,
    pages: Tensor,
    written: Tensor,
) -> None:
    """Wrong: the schema says that nothing is written."""
    launch(keys, values, key_cache, value_cache, starts, pages, written)


write_in_secret.register_fake(lambda *arguments: None)


def eager(keys, values, key_cache, value_cache, starts, pages, written) -> None:
    """The same with PyTorch's operators, without waiting for the GPU."""
    token = torch.arange(keys.shape[0], device=keys.device)
    mine = torch.searchsorted(starts, token, right=True) - 1
    position = token - starts[mine] + written[mine]
    page = key_cache.shape[1]
    place = pages[mine, position // page], position % page
    key_cache[place] = keys
    value_cache[place] = values


# [nested]
def write_nested_(keys: Tensor, values: Tensor, *rest: Tensor) -> None:
    """Take jagged nested tensors: their values, and their offsets as the starts."""
    key_cache, value_cache, pages, written = rest
    torch._check(
        keys.lengths() is None and values.lengths() is None,
        lambda: "write_nested_: expected nested tensors without lengths, so no gaps",
    )
    starts = keys.offsets().to(torch.int32)
    write_(
        keys.values(), values.values(), key_cache, value_cache, starts, pages, written
    )


# [/nested]


def case(lengths, before, heads=2, size=8, page=4, device="cpu", dtype=torch.float32):
    """Tensors for sequences of these lengths, with so many tokens written before."""
    torch.manual_seed(0)
    batch, tokens = len(lengths), sum(lengths)
    needs = [-(-(new + old) // page) for new, old in zip(lengths, before, strict=True)]
    free = torch.randperm(sum(needs) + 3, dtype=torch.int32)  # pages lie anywhere
    pages = torch.zeros(batch, max(needs), dtype=torch.int32)
    for row, numbers in enumerate(free[: sum(needs)].split(needs)):
        pages[row, : len(numbers)] = numbers
    starts = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    options = {"device": device, "dtype": dtype}
    keys, values = torch.randn(2, tokens, heads, size, **options)
    shape = len(free), page, heads, size
    caches = [torch.zeros(shape, **options) for _ in range(2)]
    written = torch.tensor(before, dtype=torch.int32)
    places = (t.to(device) for t in (starts, pages, written))
    return keys, values, *caches, *places

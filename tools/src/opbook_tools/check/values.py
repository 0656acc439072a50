"""The tensors of a sample: copies, other places in memory, other numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from opbook_tools.sample import Sample

PLAIN = (Tensor, torch.nn.Parameter)
INTEGERS = torch.int8, torch.int16, torch.int32, torch.int64
LARGE = 1537  # more than a block, and no multiple of anything
MOST_ELEMENTS = 1 << 21


@dataclasses.dataclass(frozen=True)
class Leaves:
    """The values of a sample, those in lists too, each with the name of its place."""

    names: tuple[str, ...]
    values: tuple[Any, ...]
    spec: _pytree.TreeSpec

    @classmethod
    def of(cls, sample: Sample) -> Leaves:
        """Take a sample apart."""
        tree = (list(sample.args), dict(sample.kwargs))
        pairs, spec = _pytree.tree_flatten_with_path(tree)
        names = tuple(_argument(path) for path, _ in pairs)
        return cls(names, tuple(value for _, value in pairs), spec)

    def call(self, operator: Callable) -> Any:
        """Call with these very values."""
        args, kwargs = _pytree.tree_unflatten(list(self.values), self.spec)
        return operator(*args, **kwargs)

    def replaced(self, new: dict[int, Any]) -> Leaves:
        """The same with other values at some places."""
        values = tuple(new.get(n, value) for n, value in enumerate(self.values))
        return dataclasses.replace(self, values=values)

    def mapped(
        self, change: Callable[[Tensor], Tensor], places: Iterable[int]
    ) -> Leaves:
        """The same with changed tensors at these places."""
        return self.replaced({n: change(self.values[n]) for n in places})

    def scaled(self, factor: float, places: list[int]) -> Leaves:
        """Copies, with the numbers at these places times a factor."""
        return self.copies().mapped(lambda x: (x.detach() * factor).to(x.dtype), places)

    def copies(self, device: str | None = None) -> Leaves:
        """New memory for each tensor; what shares memory here does so there."""
        known: dict[int, torch.UntypedStorage] = {}
        return self.replaced(
            {
                n: copied(x, known, device)
                if isinstance(x, Tensor)
                else x.clone_state()
                for n, x in enumerate(self.values)
                if isinstance(x, (Tensor, torch.Generator))
            }
        )

    def tensors(self) -> list[int]:
        """The places of tensors."""
        return [n for n, value in enumerate(self.values) if isinstance(value, Tensor)]

    def floating(self) -> list[int]:
        """The places of tensors that one can calculate with, and differentiate by."""
        return [n for n in self.tensors() if is_arithmetic(self.values[n])]

    def groups(self, places: list[int]) -> list[list[int]]:
        """All, those of one shape, all but one, and one alone.

        Some arguments may have a dtype of their own, as a scale in fp32 has.
        """
        shapes = {n: self.values[n].shape for n in places}
        groups = [
            places,
            *([m for m in places if shapes[m] == shapes[n]] for n in places),
            *([m for m in places if m != n] for n in places),
            *([n] for n in places),
        ]
        return [list(each) for each in dict.fromkeys(map(tuple, groups)) if each]

    def described(self) -> str:
        """The arguments in a few words."""
        parts = (
            f"{name} {_described(value)}"
            for name, value in zip(self.names, self.values, strict=True)
        )
        return ", ".join(parts) or "no arguments"


def _argument(path: tuple) -> str:
    """How a place is called: argument 0, argument 1[2], or the keyword eps."""
    group, name, *rest = path
    kind = "argument" if group.idx == 0 else "keyword"
    return f"{kind} {name.idx if group.idx == 0 else name.key}{_pytree.keystr(rest)}"


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{short(value.dtype)}{list(value.shape)}"
    return str(value)[:30]


def short(dtype: torch.dtype) -> str:
    """Say float32 for torch.float32."""
    return str(dtype).removeprefix("torch.")


def is_arithmetic(x: Tensor) -> bool:
    """Whether PyTorch calculates with it: the dtypes of 8 bits and fewer only store."""
    wide = x.dtype.itemsize > 1
    return wide and (x.is_floating_point() or x.is_complex()) and is_plain(x)


def is_plain(x: Tensor) -> bool:
    """Whether it is memory with strides, and no subclass with rules of its own."""
    return type(x) in PLAIN and x.layout == torch.strided and not x.is_quantized


def copied(
    x: Tensor,
    known: dict[int, torch.UntypedStorage] | None = None,
    device: str | None = None,
) -> Tensor:
    """The same numbers with the same strides, and the same between them, elsewhere."""
    device = device or x.device
    if not is_plain(x):
        return x.detach().clone().to(device)
    known = {} if known is None else known
    at = x.untyped_storage().data_ptr()
    storage = known.get(at) if at else None
    if storage is None:
        bits = memory(x.detach()).to(device, copy=True)
        storage = known[at] = bits.untyped_storage()
    new = torch.empty(0, dtype=x.dtype, device=device)
    new.set_(storage, x.storage_offset(), x.size(), x.stride())
    new = new.conj() if x.is_conj() else new
    return torch._neg_view(new) if x.is_neg() else new


def storage_of(x: Tensor) -> int:
    """The address where its memory begins; 0 if it is none with strides."""
    return x.untyped_storage().data_ptr() if x.layout == torch.strided else 0


def in_double(x: Tensor) -> Tensor:
    """The same numbers in the widest dtype of their kind."""
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def other_values(x: Tensor) -> Tensor:
    """Other values of the same shape; indices stay within what they index."""
    if x.dtype == torch.bool:
        return ~x
    if is_arithmetic(x):
        return 1.5 * x.resolve_conj() + 0.75
    return x.flatten().roll(1).view(x.shape)


def layouts(x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The same numbers at other places in memory, with other numbers between them."""
    if not is_plain(x) or not x.numel():
        return
    if x.dtype.itemsize == 1 and x.dtype.is_floating_point:
        # There is no arithmetic, and not each function that moves memory.
        for name, view in layouts(x.view(torch.uint8)):
            yield name, view.view(x.dtype)
        return
    x = x.detach().resolve_conj().resolve_neg()
    if x.dim() >= 2:
        yield "transposed", x.transpose(0, -1).contiguous().transpose(0, -1)
    if x.dim() >= 3:
        yield "dimensions permuted", x.movedim(0, -1).contiguous().movedim(-1, 0)
        # Its rows are dense, and no single stride leads from each to the next.
        wider = torch.cat([x, other_values(x)], -2)
        yield "part of a longer dimension -2", wider[..., : x.shape[-2], :]
    if x.dim() == 4:
        yield "channels last", x.contiguous(memory_format=torch.channels_last)
    others = other_values(x)
    if x.dim() >= 1:
        yield "every second element", torch.stack([x, others], -1)[..., 0]
        yield "rows of a wider tensor", torch.cat([x, others], -1)[..., : x.shape[-1]]
    # What is read beside it, and times 0, is still NaN.
    beside = torch.full_like(x, torch.nan) if is_arithmetic(x) else others
    around = torch.cat([beside.flatten()[:1], x.flatten(), beside.flatten()])
    yield "not aligned", around[1 : x.numel() + 1].view(x.shape)
    if x.is_complex():
        yield "a conjugate that is not computed yet", x.conj().resolve_conj().conj()


def memory(x: Tensor) -> Tensor:
    """The whole memory of a tensor as bytes."""
    if not is_plain(x):
        return torch.empty(0)
    empty = torch.empty(0, dtype=torch.uint8, device=x.device)
    return empty.set_(x.detach().untyped_storage())


def overlap(x: Tensor, y: Tensor) -> bool:
    """Whether an element of one lies where an element of the other does."""
    known = is_plain(x) and is_plain(y) and storage_of(x) and storage_of(y)
    return bool(known and torch.isin(_addresses(x), _addresses(y)).any())


def _addresses(x: Tensor) -> Tensor:
    every = torch.arange(x.untyped_storage().nbytes() // x.itemsize)
    every = every.as_strided(x.shape, x.stride(), x.storage_offset())
    return storage_of(x) + x.itemsize * every


def outside(x: Tensor) -> Tensor:
    """The whole memory of a tensor as bytes, with zeros where the tensor is."""
    whole = copied(x)
    if whole.numel():
        whole.zero_()
    return memory(whole)


@dataclasses.dataclass(frozen=True)
class Special:
    """Numbers that an operator may have been written without, and what they may do."""

    name: str
    numbers: Tensor
    grow: bool = False  # a result that is as large as its numbers would fill memory
    fill_rows: bool = False  # rows of -inf have more than one right result
    have_signs: bool = False  # zeros, which a comparison takes for equal


def special(x: Tensor) -> Iterator[Special]:
    """Negative and large integers; infinities, zeros, large and equal numbers."""
    if not is_arithmetic(x):
        if x.dtype in INTEGERS:
            yield Special("its numbers times -1", -x)
            large = x * min(1 << 4 * x.dtype.itemsize, 1 << 17)
            yield Special("large numbers", large)
        if x.dtype in INTEGERS[2:]:
            odd = 2 * x + (1 << 24) + 1
            yield Special("odd numbers above 2**24", odd, grow=True)
        return
    for value in (math.nan, math.inf, -math.inf, -0.0, 0.0):
        some = x.clone().contiguous()
        some.view(-1)[:: max(2, x.numel() // 3)] = value
        needs = {"fill_rows": math.isinf(value), "have_signs": value == 0}
        yield Special(str(value), some, **needs)
    # A maximum may start at a number that is not the least one.
    large = x.abs().clamp(0.5, 2) * min(1e12, torch.finfo(x.dtype).max ** (1 / 3))
    yield Special("large numbers, all negative", -large.to(x.dtype))
    yield Special("large numbers, all positive", large.to(x.dtype))
    for factor in (100, 0.01, -1):
        yield Special(f"its numbers times {factor}", (x * factor).to(x.dtype))
    yield Special("zeros", torch.zeros_like(x))
    yield Special("equal numbers", x.flatten()[:1].repeat(x.numel()).view(x.shape))


def resized(leaves: Leaves, new: dict[int, int]) -> Leaves:
    """Give dimensions of these sizes other sizes, and cycle through the numbers."""

    def change(x: Tensor) -> Tensor:
        shape = torch.Size(new.get(size, size) for size in x.shape)
        if not x.numel():
            return x.new_zeros(shape)
        cycled = x.flatten()[torch.arange(shape.numel()) % x.numel()].view(shape)
        generator = torch.Generator().manual_seed(0)
        factor = 1 - torch.rand(shape, generator=generator) / 4
        return (cycled * factor.to(x.device)).to(x.dtype)

    return leaves.mapped(change, leaves.floating())


def in_other_sizes(
    leaves: Leaves, changes: Iterable[dict[int, int]]
) -> Iterator[tuple[str, Leaves]]:
    """With each change of sizes that does not lead to too many elements."""
    shapes = [leaves.values[n].shape for n in leaves.floating()]
    most = max(MOST_ELEMENTS, 2 * sum(map(math.prod, shapes)))
    for new in changes:
        if sum(math.prod(new.get(n, n) for n in shape) for shape in shapes) <= most:
            pairs = " and ".join(f"{now} for {was}" for was, now in new.items())
            yield f"a size of {pairs}", resized(leaves, new)


def odd(size: int) -> int:
    """An odd size, somewhat larger."""
    return size + 1 if size % 2 == 0 else size + 2


def sizes(leaves: Leaves) -> list[int]:
    """The different sizes of dimensions, without those of 1, which broadcast."""
    found = {n for place in leaves.floating() for n in leaves.values[place].shape}
    return sorted(found - {0, 1})


def changes(leaves: Leaves) -> list[dict[int, int]]:
    """Other sizes than the sample has: all of them odd, then one after another."""
    known = sizes(leaves)
    together = [{old: odd(old) for old in known}] if known else []
    return together + [{old: new} for old in known for new in (0, 1, odd(old))]

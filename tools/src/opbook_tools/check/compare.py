"""Whether two results are the same but for rounding, and where they are not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbook_tools.check.errors import Found
from opbook_tools.check.values import short

# An operator may round this many times as much as one operation does.
ROUNDINGS = 16


def eps_of(values: Any) -> float:
    """The rounding of the coarsest floating dtype among these."""
    dtypes = (
        v.dtype
        for v in values
        if isinstance(v, Tensor) and (v.is_floating_point() or v.is_complex())
    )
    return max((torch.finfo(dtype).eps for dtype in dtypes), default=0.0)


def wide(x: Tensor) -> Tensor:
    """All numbers, exactly, where they can be compared."""
    x = x.detach().to("cpu")
    if x.is_complex():
        return x.to(torch.complex128)
    return x.to(torch.float64) if x.is_floating_point() else x


def bound(
    expected: Tensor, eps: float, noise: Tensor | None, few: float = ROUNDINGS
) -> Tensor:
    """How far from each expected number its rounding may lead.

    Args:
        expected: The numbers, in fp64.
        eps: Of the dtype that they were computed in.
        noise: How much each changes with a rounding of the arguments, if known.
        few: How many roundings are allowed.
    """
    size = expected.abs()
    allowed = few * eps * size + few / 8 * eps * largest(size)
    return allowed if noise is None else allowed + few / 2 * noise


def largest(size: Tensor) -> Tensor:
    """The largest number, but for those that stand for nothing, such as -1e10.

    They would leave room for any difference of the others. Half of the different
    numbers are as large as the median or larger, however often one of them is there.
    """
    known = size[size.isfinite() & (size > 0)].unique()
    if not len(known):
        return size.new_zeros(())
    return torch.minimum(known[-1], 100 * known[(len(known) - 1) // 2])


def difference(
    actual: Any,
    expected: Any,
    *,
    eps: float | None = None,
    noise: Tensor | None = None,
    few: float = ROUNDINGS,
    dtype: bool = True,
) -> str | None:
    """Say at which place two values differ by more than rounding, and both of them."""
    if not isinstance(actual, Tensor) or not isinstance(expected, Tensor):
        return _of_objects(actual, expected)
    if actual.shape != expected.shape:
        return f"has the shape {list(actual.shape)} instead of {list(expected.shape)}"
    if dtype and actual.dtype != expected.dtype:
        return f"is {short(actual.dtype)} instead of {short(expected.dtype)}"
    if actual.device.type != expected.device.type:
        return f"is on {actual.device} instead of {expected.device}"
    if actual.device.type == "meta" or not expected.numel():
        return None
    eps = eps_of((actual, expected)) if eps is None else eps
    a, e = wide(_dense(actual)), wide(_dense(expected))
    same = (a == e) | ((a != a) & (e != e))
    if same.all():
        return None
    if e.is_floating_point() or e.is_complex():
        limit = bound(e, eps, noise, few)
        # Nothing finite may stand for an infinity or a NaN, nor one of these for it.
        both = a.isfinite() & e.isfinite()
        same |= both & ((a - e).abs() <= limit)
    if noise is not None:
        same |= noise == torch.inf
    if same.all():
        return None
    place = tuple((~same).nonzero()[0].tolist())
    where = f"{list(place)}" if place else ""
    kind = ".7g" if e.is_floating_point() or e.is_complex() else ""
    pair = f"{a[place].item():{kind}} instead of {e[place].item():{kind}}"
    return f"{where} is {pair}".strip()


def demand(actual: Any, expected: Any, what: str, name: str, **options: Any) -> None:
    """Compare, and say what differs.

    Raises:
        Found: There is a difference.
    """
    if text := difference(actual, expected, **options):
        space = "" if text.startswith("[") else " "
        raise Found(f"{what}: {name}{space}{text}")


def moved(actual: Any, expected: Any) -> Tensor | None:
    """How far each number lies from the expected one; infinite for another kind."""
    if not isinstance(actual, Tensor) or not isinstance(expected, Tensor):
        return None
    if actual.shape != expected.shape or expected.device.type == "meta":
        return None
    a, e = (wide(_dense(x)) for x in (actual, expected))
    if not e.is_floating_point() and not e.is_complex():
        return torch.where(a == e, 0.0, torch.inf)
    far = (a - e).abs()
    same = (a == e) | ((a != a) & (e != e))
    return torch.where(same, 0.0, torch.where(far.isfinite(), far, torch.inf))


def even(noise: Tensor | None) -> Tensor | None:
    """At least half of the mean everywhere: an element may be still by chance."""
    if noise is None or not noise.isfinite().any():
        return noise
    known = noise[noise.isfinite()]
    return noise.clamp_min(known.clamp_max(largest(known)).mean() / 2)


def larger(known: Tensor | None, new: Tensor | None) -> Tensor | None:
    """The larger of two distances, element by element."""
    return new if known is None else known if new is None else torch.maximum(known, new)


def spread(
    expected: Sequence[Any], others: Iterable[Sequence[Any]]
) -> list[Tensor | None]:
    """How far the results of other calls lie from the expected ones, at most."""
    far: list[Tensor | None] = [None] * len(expected)
    for each in others:
        for n, pair in enumerate(zip(each, expected, strict=False)):
            far[n] = larger(far[n], moved(*pair))
    return far


def _dense(x: Tensor) -> Tensor:
    x = x.detach()
    if x.is_quantized:
        return x.dequantize()
    return x.to_dense() if x.layout != torch.strided else x.resolve_conj()


def _of_objects(actual: Any, expected: Any) -> str | None:
    if isinstance(actual, Tensor) or isinstance(expected, Tensor):
        kinds = type(actual).__name__, type(expected).__name__
        return f"is of type {kinds[0]} instead of {kinds[1]}"
    if isinstance(actual, (int, float, complex)) and isinstance(
        expected, (int, float, complex)
    ):
        pair = torch.tensor([actual, expected], dtype=torch.complex128)
        return difference(pair[0], pair[1], eps=torch.finfo(torch.float32).eps)
    if isinstance(expected, (str, bytes, type(None), torch.dtype, torch.device)):
        same = type(actual) is type(expected) and actual == expected
        return None if same else f"is {actual!r} instead of {expected!r}"
    return None

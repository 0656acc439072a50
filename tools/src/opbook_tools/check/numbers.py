"""The numbers themselves, beside a reference or beside a wider dtype."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from opbook_tools.check import compare, values
from opbook_tools.check.case import Case, Outcome, checks, switched
from opbook_tools.check.errors import Found, Refused, Skipped, unless_all_refuse
from opbook_tools.check.memory import filled_memory
from opbook_tools.check.values import Leaves, is_plain, short


@checks("reference")
def _(case: Case) -> None:
    _needs_reference(case)
    _computes_before_it_returns(case)
    _beside_reference(case, case.leaves, "the sample", dtype=True)
    usual = _by_reference(case, case.leaves)
    for what, others in switched(case.operator, case.leaves):
        for leaves in others:
            with contextlib.suppress(Refused, Skipped):
                matters = _differ(usual, _by_reference(case, leaves))
                if matters and not case.having(leaves).facts.is_random:
                    _beside_reference(case, leaves, what)
                break  # both take it, or the reference takes no notice


def _computes_before_it_returns(case: Case) -> None:
    """A tensor of a class of its own may compute when somebody looks at it."""
    try:
        expected = case.call(case.leaves.copies(), case.reference).tensors()
    except Refused as why:
        raise Skipped(f"the reference refuses the sample: {why}") from why
    actual = case.call(case.leaves.copies()).tensors()
    for a, e in zip(actual, expected, strict=False):
        if type(e) in values.PLAIN and type(a) not in values.PLAIN:
            raise Found(
                f"a result is of the class {type(a).__name__}, which may compute when "
                "its numbers are looked at: the reference returns a plain tensor"
            )


@checks("sizes")
def _(case: Case) -> None:
    _needs_reference(case)
    tensors, floating = case.leaves.tensors(), case.leaves.floating()
    if len(tensors) > len(floating) and not case.sizes:
        raise Skipped("sizes may depend on the integers: --sizes tries others")
    changes = values.changes(case.leaves)
    if not changes:
        raise Skipped("it takes no tensor with a size to change")
    known = values.sizes(case.leaves)
    changes += [{old: values.LARGE} for old in known]
    if len(known) > 1:  # together more elements than 16 bits count
        changes.append({known[-2]: 47, known[-1]: values.LARGE})
    skipped = []
    for what, leaves in values.in_other_sizes(case.leaves, changes):
        with filled_memory():
            skipped.append(_if_it_takes_them(case, leaves, what))
    shapes = {case.leaves.values[n].shape for n in floating}
    results = {x.shape for x in case.expected.tensors()}
    if len(shapes) == 1 and results <= shapes:  # element by element
        single = case.leaves.mapped(lambda x: x.flatten()[:1].sum(), floating)
        skipped.append(_if_it_takes_them(case, single, "no dimensions"))
    _raise_if_all(skipped)


@checks("values")
def _(case: Case) -> None:
    _needs_reference(case)
    # Integers beside floating-point tensors may be indices.
    places = case.leaves.floating() or case.leaves.tensors()
    places = [n for n in places if case.leaves.values[n].numel()]
    if not places:
        raise Skipped("it takes no tensor with numbers")
    skipped = []
    for n in places:
        for special in values.special(case.leaves.values[n].detach()):
            if special.grow and _grows_with_numbers(case, n):
                continue  # as far as memory reaches
            leaves = case.leaves.copies().replaced({n: special.numbers})
            what = f"{case.leaves.names[n]} with {special.name}"
            skipped.append(_if_it_takes_them(case, leaves, what, special.fill_rows))
            if special.have_signs:
                with contextlib.suppress(Refused):
                    _keeps_its_sign(case, leaves, n, what)
    for what, leaves in _from_the_end(case):
        _if_it_takes_them(case, leaves, what)
    _raise_if_all(skipped)


def _grows_with_numbers(case: Case, n: int) -> bool:
    """Whether a result is as large as its numbers, as that of bincount is."""
    moved = case.leaves.values[n].detach() + 256
    pair = case.leaves, case.leaves.replaced({n: moved})
    try:
        usual, other = (_by_reference(case, each).tensors() for each in pair)
    except Skipped:
        return False
    return [x.shape for x in usual] != [x.shape for x in other]


def _keeps_its_sign(case: Case, leaves: Leaves, n: int, what: str) -> None:
    """Where the reference is odd in one number, the sign of a zero is that of both."""
    zeros = leaves.values[n] == 0
    step = leaves.values[n].abs().mean() / 1024

    def reference(by: Tensor | None = None) -> tuple:
        x = leaves.values[n] if by is None else leaves.values[n].where(~zeros, by)
        return case.call(leaves.copies().replaced({n: x}), case.reference).tensors()

    actual = case.call(leaves.copies()).tensors()
    every = zip(actual, reference(), reference(step), reference(-step), strict=False)
    for a, e, above, below in every:
        if not values.is_arithmetic(a) or a.is_complex() or not torch.equal(a, e):
            continue
        is_odd = (above == -below) & (above != 0)
        lost = is_odd & (a == 0) & (a.signbit() != e.signbit())
        if lost.any() and (above != below).sum() <= zeros.sum():
            place = lost.nonzero()[0].tolist()
            signs = [x[lost][0].item() for x in (a, e)]
            text = f"the result{place} is {signs[0]} instead of {signs[1]}"
            raise Found(f"{what}, beside the reference: {text}")


def _from_the_end(case: Case) -> Iterator[tuple[str, Leaves]]:
    """Indices that the reference counts from the end, and takes for the same."""
    shapes = [case.leaves.values[n].shape for n in case.leaves.floating()]
    sizes = {*map(len, shapes), *(size for shape in shapes for size in shape)} - {0}
    usual = _by_reference(case, case.leaves)
    for n, i in enumerate(case.leaves.values):
        if not (
            type(i) is int or (isinstance(i, Tensor) and i.dtype in values.INTEGERS)
        ):
            continue
        every = torch.as_tensor(i)
        for size in sizes if every.numel() else ():
            last = int(every.max())
            by = -size if every.min() >= 0 else size
            if not -size <= last < size or (by > 0 and type(i) is not int):
                continue
            same, near = (every.where(every != last, last + by + k) for k in (0, 1))
            same, near = (int(x) if type(i) is int else x for x in (same, near))
            changed = [case.leaves.copies().replaced({n: x}) for x in (same, near)]
            if _is_index(case, usual, *changed):
                yield f"{case.leaves.names[n]} with {last + by} for {last}", changed[0]


def _is_index(case: Case, usual: Outcome, same: Leaves, near: Leaves) -> bool:
    try:
        if _differ(usual, _by_reference(case, same)):
            return False
    except Skipped:
        return False
    try:
        return _differ(usual, _by_reference(case, near))
    except Skipped:
        return True


def _differ(first: Outcome, second: Outcome) -> bool:
    """Whether other numbers are returned, or left in what is no index."""
    both = zip(first.values, second.values, strict=False)
    return any(
        compare.difference(a, b)
        for n, (a, b) in enumerate(both)
        if n < first.results or values.is_arithmetic(a)
    )


def _needs_reference(case: Case) -> None:
    if case.reference is None:
        raise Skipped("no reference is given")
    case.once_known()


def _if_it_takes_them(
    case: Case, leaves: Leaves, what: str, fill_rows: bool = False
) -> Skipped | None:
    """Compare, unless the operator refuses; return why the reference cannot."""
    try:
        # PyTorch's other attention on the CPU returns 0 for a row with NaN.
        with sdpa_kernel(SDPBackend.MATH):
            _beside_reference(case, leaves, what, fill_rows=fill_rows)
    except Refused:
        return None
    except Skipped as why:
        return why


def _raise_if_all(skipped: list[Skipped | None]) -> None:
    """A reference that refuses one call has the others compared."""
    if skipped and all(skipped):
        raise skipped[0]


def _beside_reference(
    case: Case,
    leaves: Leaves,
    what: str,
    *,
    dtype: bool = False,
    fill_rows: bool = False,
) -> None:
    """Compare with the reference in fp64, and in the arguments' dtype.

    What the reference itself does in that dtype, overflow for example, is no fault.
    """
    plain = _by_reference(case, leaves)
    case.ask_the_cpu(leaves)
    actual = case.call(leaves.copies()).kept()
    plain = _alike(plain, actual)
    try:
        wide = leaves.mapped(values.in_double, leaves.floating())
        precise = _alike(_by_reference(case, wide), actual)
    except Refused:
        precise = plain
    eps = compare.eps_of((*leaves.values, *actual.values))
    largest = max((leaves.values[n].numel() for n in leaves.floating()), default=1)
    # The error of a sum grows with the root of its length, in the mean.
    few = compare.ROUNDINGS / 2 + 2 * math.sqrt(min(largest, 1 << 14))
    noise = case.noise_of(leaves, plain, case.reference)
    what = f"{what}, beside the reference"
    columns = actual.names, actual.values, plain.values, precise.values, noise
    for name, value, right, exact, moved in zip(*columns, strict=True):
        moved = compare.larger(moved, _own_error(right, exact))
        value = _or_zero(value, right) if fill_rows else value
        if dtype and (other := _other_dtype(value, right)):
            raise Found(f"{what}: {name} {other}")
        options = {"eps": eps, "noise": moved, "few": few, "dtype": False}
        if compare.difference(value, exact, **options):
            compare.demand(value, right, what, name, **options)


def _or_zero(actual: object, expected: object) -> object:
    """Where -inf fills a row, PyTorch's attention returns 0, and a softmax NaN."""
    tensors = all(isinstance(x, Tensor) and is_plain(x) for x in (actual, expected))
    if not tensors or actual.shape != expected.shape:
        return actual
    return actual.where(~(actual.isnan() & (expected == 0)), 0)


def _other_dtype(actual: object, expected: object) -> str:
    """Say which dtype is wrong; a reference may calculate in a wider one."""
    if not isinstance(actual, Tensor) or not isinstance(expected, Tensor):
        return ""
    a, e = actual.dtype, expected.dtype
    is_wider = e.is_floating_point and a.is_floating_point and e.itemsize > a.itemsize
    return "" if a == e or is_wider else f"is {short(a)} instead of {short(e)}"


def _own_error(plain: object, precise: object) -> Tensor | None:
    """How far the reference is from its numbers in fp64, where both are finite.

    A difference of large numbers loses digits, in any right operator too.
    """
    far = compare.moved(plain, precise)
    return compare.even(None if far is None else far.nan_to_num(posinf=0.0))


def _by_reference(case: Case, leaves: Leaves) -> Outcome:
    try:
        case.ask_the_cpu(leaves, case.reference)
        return case.call(leaves.copies(), case.reference).kept()
    except Refused as why:
        raise Skipped(f"the reference refuses this: {why}") from why


def _alike(reference: Outcome, actual: Outcome) -> Outcome:
    """The reference's outcome; it may return what the operator writes."""
    if reference.results == actual.results:
        return reference
    returned = list(reference.values[: reference.results])
    returned = [x for x in returned if isinstance(x, Tensor)]
    if actual.results and actual.tensors():
        count = f"{actual.results} results instead of {reference.results}"
        raise Found(f"beside the reference: {count}")
    return Outcome(
        actual.names, tuple(_written(reference, returned, actual)), actual.results
    )


def _written(reference: Outcome, returned: list, actual: Outcome) -> Iterator:
    """For each value of an operator that returns nothing, what it should be."""
    yield from actual.values[: actual.results]
    after = reference.values[reference.results :]
    for mine, theirs in zip(actual.values[actual.results :], after, strict=True):
        same = compare.difference(mine, theirs, dtype=False) is None
        fits = returned and returned[0].shape == mine.shape
        yield returned.pop(0) if fits and not same else theirs


@checks("half precision")
def _(case: Case) -> None:
    case.once_known()
    known = [(n, case.leaves.values[n]) for n in case.leaves.floating()]
    real = [n for n, x in known if x.numel() and not x.is_complex()]
    if not real:
        raise Skipped("it takes no floating-point tensor with numbers")
    ways = itertools.product(case.low_dtypes, case.leaves.groups(real))
    unless_all_refuse(
        lambda w=w: _in_low_precision(case, case.leaves, *w) for w in ways
    )
    for (where, leaves), dtype in itertools.product(
        _harder(case, real), case.low_dtypes
    ):
        with contextlib.suppress(Refused):
            _in_low_precision(case, leaves, dtype, real, where)


def _harder(case: Case, real: list[int]) -> Iterator[tuple[str, Leaves]]:
    """What is added to avoid a division by 0 vanishes; sums are long; squares large."""
    for n in real:
        zeros = case.leaves.mapped(torch.zeros_like, [n])
        yield f", zeros for {case.leaves.names[n]}", zeros
    # A generator draws other numbers for other sizes.
    if case.has_generator or real != case.leaves.tensors():
        return
    longer = [{size: values.LARGE} for size in values.sizes(case.leaves)[-1:]]
    for _, leaves in values.in_other_sizes(case.leaves, longer):
        long = leaves.mapped(torch.abs, real)
        yield f", a size of {values.LARGE}", long
        if case.reference:
            large = long.mapped(lambda x: x * (1024 / x.amax()), real)
            yield ", numbers up to 1024", large


def _in_low_precision(
    case: Case, leaves: Leaves, dtype: torch.dtype, places: list[int], where: str = ""
) -> None:
    low = leaves.copies().mapped(lambda x: x.detach().to(dtype), places)
    high = low.copies().mapped(lambda x: x.float(), places)
    actual = case.call(low.copies()).kept()
    operator = case.reference or case.operator
    try:
        expected = case.call(high, operator).kept()
    except Refused:
        return
    if actual.results != expected.results:
        return
    eps = torch.finfo(dtype).eps
    every = len(places) > 1 and places == case.leaves.floating()
    names = "all" if every else " and ".join(case.leaves.names[n] for n in places)
    others = case.values_of(_rounded(low, places, eps), operator)
    right = [_up_to_the_end(x, dtype) for x in expected.values]
    noise = compare.spread(
        right, ([_up_to_the_end(x, dtype) for x in v] for v in others)
    )
    overflow = _overflow(case, low, right)
    for n, x in enumerate(actual.values):
        if not isinstance(x, Tensor) or x.dtype != dtype:
            continue
        # Many roundings: grid_sample computes its coordinates in this dtype too.
        moved = compare.larger(noise[n], overflow[n])
        options = {"eps": eps, "noise": moved, "few": 12, "dtype": False}
        what = f"{short(dtype)} beside float32, {names}{where}"
        compare.demand(x, right[n], what, actual.names[n], **options)


def _up_to_the_end(x: object, dtype: torch.dtype) -> object:
    """Infinite where no number of this dtype is as large."""
    if not isinstance(x, Tensor) or not values.is_arithmetic(x) or x.is_complex():
        return x
    low = x.to(dtype)
    return torch.where(low.isinf(), low.to(x.dtype), x)


def _overflow(case: Case, low: Leaves, right: list) -> list[Tensor | None]:
    """Infinite where the reference itself overflows in the low dtype, or 0."""
    plain: tuple = ()
    if case.reference:
        with contextlib.suppress(Refused):
            plain = case.call(low.copies(), case.reference).values
    far = compare.spread(right, [plain])
    return [None if x is None else torch.where(x.isinf(), x, 0.0) for x in far]


def _rounded(low: Leaves, places: list[int], eps: float) -> Iterator[Leaves]:
    """In fp32, as far away as a rounding in the low dtype leads."""
    generator = torch.Generator().manual_seed(0)
    for one_way in (None, None, None, -1, 1):  # these move all that is near a step

        def rounded(x: Tensor, one_way=one_way) -> Tensor:
            way = torch.randint(-1, 2, x.shape, generator=generator) / 2
            return x.float() * (1 + eps * (one_way or way.to(x.device)))

        yield low.copies().mapped(rounded, places)

"""Where arguments and results lie, who else has that memory, and what was there."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from opbook_tools.check import compare, values
from opbook_tools.check.case import Case, Outcome, annotated, checks, overload
from opbook_tools.check.errors import Crashed, Found, Noted, Refused, Skipped
from opbook_tools.check.isolate import can_isolate, isolated
from opbook_tools.check.values import Leaves
from opbook_tools.sample import Sample

Call = tuple[str, Callable[[], Outcome]]


@checks("hundredth call", alone=True)
def _(case: Case) -> None:
    case.once_known()
    fresh = isolated(lambda: case.call(case.leaves.copies()).kept())
    end = time.monotonic() + 0.3
    for number in range(2, 102):
        what = f"call number {number}"
        case.compare(
            case.call(case.leaves.copies()), what, fresh, case.noise, eps=case.eps
        )
        if time.monotonic() > end:
            break


@checks("changed in between", alone=True)
def _(case: Case) -> None:
    case.once_known(has_order=True)
    leaves = case.leaves.copies()
    memory = {values.storage_of(leaves.values[n]) for n in leaves.tensors()}
    if len(memory) < len(leaves.tensors()):
        raise Skipped("arguments share memory")
    # Each in a process that has seen no other numbers, for a cache by content.
    known = [
        (*each, isolated(lambda e=each: _fresh(case, e[1]))) for each in _others(case)
    ]
    first = [
        x for x in case.call(leaves).tensors() if values.storage_of(x) not in memory
    ]
    was = [x.detach().clone() for x in first]
    _is_ready(first, was)
    for what, other, fresh in known:
        if fresh is None:
            continue
        for n in leaves.tensors():
            _overwrite(leaves.values[n], other.values[n])
        options = {"expected": fresh[0], "noise": fresh[1], "eps": case.eps}
        case.compare(case.call(leaves), f"the same tensor, {what}", **options)
        case.compare(case.call(other.copies()), f"another tensor, {what}", **options)
        for x, before in zip(first, was, strict=True):
            what = "the result of an earlier call, after another"
            compare.demand(x, before, what, "it")


def _is_ready(results: list[Tensor], then: list[Tensor]) -> None:
    """Whether nobody writes to results any more, in a thread or on a stream."""
    time.sleep(0.01)
    for x, before in zip(results, then, strict=True):
        compare.demand(x, before, "the result is written after the call", "it")


def _fresh(case: Case, leaves: Leaves) -> tuple | None:
    try:
        case.ask_the_cpu(leaves)
        outcome = case.call(leaves.copies()).kept()
        return outcome, case.noise_of(leaves, outcome)
    except Refused:
        return None


def _others(case: Case) -> Iterator[tuple[str, Leaves]]:
    """Arguments that a careless key takes for those of the sample."""
    leaves = case.leaves.copies()
    places = [n for n in leaves.floating() if leaves.values[n].numel()]
    if not places:
        raise Skipped("it takes no floating-point tensor")

    def last_changed(x: Tensor) -> Tensor:
        x = x.detach().clone().contiguous()
        x.view(-1)[-1:] *= 0.5
        return x

    def two_swapped(x: Tensor) -> Tensor:
        flat = x.detach().clone().contiguous().view(-1)
        flat[1:-1] = flat[1:-1].flip(0)
        return flat.view(x.shape)

    yield "half the numbers", leaves.scaled(0.5, places)
    yield "another last number", leaves.mapped(last_changed, places)
    yield "other places of the numbers", leaves.mapped(two_swapped, places)


def _overwrite(x: Tensor, new: Tensor) -> None:
    try:
        x.detach().copy_(new.detach())
    except RuntimeError as error:
        raise Skipped("elements of an argument share memory") from error


@checks("freed memory", alone=True)
def _(case: Case) -> None:
    """Reference counts free all of it: GPU memory starts no garbage collector."""
    wanted = [n for n in case.leaves.floating() if n not in case.facts.written]

    def grown(places: list[int], calls: int = 10) -> int:
        counts = []
        for number in range(2 * calls):
            if number % calls == 0:
                counts.append(_alive())
            leaves = case.leaves.copies()
            # An operator may refuse to record a gradient, which is no finding here.
            with contextlib.suppress(Refused):
                case.call(leaves.mapped(lambda x: x.requires_grad_(), places))
        return _alive() - counts[1] if counts[1] > counts[0] else 0

    was = gc.isenabled()
    gc.collect()
    gc.freeze()  # what lives already is not counted, which would take long
    gc.disable()
    try:
        for places, what in (([], ""), (wanted, " that record a gradient")):
            if (more := grown(places)) >= 10:
                raise Found(
                    f"10 calls{what} leave {more} tensors until the garbage collector "
                    "runs, or for ever: a context or a cache keeps them"
                )
    finally:
        if was:
            gc.enable()
        gc.unfreeze()


def _alive() -> int:
    return sum(issubclass(type(each), Tensor) for each in gc.get_objects())


@checks("strides")
def _(case: Case) -> None:
    case.once_known(has_order=True)
    case.all_the_same(_layouts(case))
    case.all_the_same(_written_layouts(case))
    _expanded(case)
    with contextlib.suppress(Refused):
        case.all_the_same(_indices(case), dtype=False)


def _moved_alone(leaves: Leaves) -> Iterator[tuple[str, Leaves]]:
    for n in leaves.tensors():
        for name, view in values.layouts(leaves.values[n]):
            yield f"{leaves.names[n]}, {name}", leaves.copies().replaced({n: view})


def _moved_together(leaves: Leaves) -> Iterator[tuple[str, Leaves]]:
    views = {n: dict(values.layouts(leaves.values[n])) for n in leaves.tensors()}
    if len(views) < 2:
        return
    for name in dict.fromkeys(itertools.chain(*views.values())):
        having = {n: each[name] for n, each in views.items() if name in each}
        yield f"all arguments, {name}", leaves.copies().replaced(having)


def _layouts(case: Case) -> Iterator[Call]:
    moved = itertools.chain(_moved_alone(case.leaves), _moved_together(case.leaves))
    for what, leaves in moved:
        yield what, lambda what=what, leaves=leaves: _around_it(case, leaves, what)


def _around_it(case: Case, leaves: Leaves, what: str) -> Outcome:
    """Call, and look at the memory between and beside the elements too."""
    plain = [n for n in leaves.tensors() if values.is_plain(leaves.values[n])]
    before = {n: values.outside(leaves.values[n]) for n in plain}
    outcome = case.call(leaves)
    for n in plain:
        if not torch.equal(values.outside(leaves.values[n]), before[n]):
            raise Found(f"{what}: memory outside of {leaves.names[n]} is written")
    return outcome


def _indices(case: Case) -> Iterator[Call]:
    """Beside other tensors, integers are indices: of 32 bits or of 64."""
    other = {torch.int64: torch.int32, torch.int32: torch.int64}
    for n in case.leaves.tensors() if case.leaves.floating() else ():
        if dtype := other.get(case.leaves.values[n].dtype):
            leaves = case.leaves.copies().mapped(lambda x, d=dtype: x.to(d), [n])
            what = f"{leaves.names[n]} in {values.short(dtype)}"
            yield what, lambda leaves=leaves: case.call(leaves)


def _written_layouts(case: Case) -> Iterator[Call]:
    """What is written, to memory that the sample's author did not lay out."""
    for n in case.facts.written:
        x = case.leaves.values[n]
        if values.is_plain(x) and not x.is_contiguous():
            leaves = case.leaves.copies().replaced({n: x.detach().clone()})
            what = f"{leaves.names[n]}, contiguous"
            yield what, lambda leaves=leaves: case.call(leaves)


def _expanded(case: Case) -> None:
    """The same row or column again and again: `expand` makes a stride of 0."""
    ends = {"row": 0, "column": -1}
    for n, (end, dim) in itertools.product(case.leaves.floating(), ends.items()):
        x = case.leaves.values[n]
        if n in case.facts.written or not x.dim() or x.shape[dim] < 2:
            continue
        view = x.detach().narrow(dim, 0, 1).clone().expand(x.shape)
        expanded, dense = (
            case.leaves.copies().replaced({n: each})
            for each in (view, view.contiguous())
        )
        try:
            expected = case.call(dense).kept()
            noise = case.noise_of(dense, expected)
            actual = case.call(expanded)
        except Refused:
            continue
        what = f"{case.leaves.names[n]}, expanded from one {end}"
        case.compare(actual, what, expected, noise, eps=case.eps)


@checks("outputs share memory")
def _(case: Case) -> None:
    leaves = case.leaves.copies()
    fault = _shared(case, leaves, case.call(leaves).tensors())
    if fault and case.reference:
        leaves = case.leaves.copies()
        same = _shared(case, leaves, case.call(leaves, case.reference).tensors())
        fault = "" if same else fault
    if fault:
        raise Found(f"{fault}: who writes to one changes both")


def _shared(case: Case, leaves: Leaves, results: list[Tensor]) -> str:
    """Which memory is shared in a way that autograd does not know."""
    given = {n: leaves.values[n] for n in leaves.tensors()}
    taken = {values.storage_of(x) for x in given.values()}
    own = [x for x in results if values.storage_of(x) not in taken]
    if any(values.overlap(*pair) for pair in itertools.combinations(own, 2)):
        return "two results share memory"
    for (n, x), y in itertools.product(given.items(), results):
        is_view = y._base is (x if x._base is None else x._base)
        if n in case.facts.written or is_view or not values.overlap(x, y):
            continue
        if not any(y is each for each in given.values()):
            return f"a result has memory of {leaves.names[n]}, and is no view of it"
        if case.reference:
            return f"a result is {leaves.names[n]}, and not that of the reference"
    return ""


@checks("two devices")
def _(case: Case) -> None:
    places = [
        n for n in case.leaves.tensors() if values.is_plain(case.leaves.values[n])
    ]
    if len(places) < 2:
        raise Skipped("it takes one tensor")
    if not case.facts.calls:
        raise Skipped("it calls no registered operator but PyTorch's own")
    # The shape may be all that the operator reads of an argument.
    places = [n for n in places if case.matters(n)]
    if not places:
        raise Skipped("other numbers change none of its results")
    refusal = None
    for n in places:
        try:
            has_data = isolated(lambda n=n: _without_data(case, n))
        except Refused as why:
            refusal = why
            continue
        except Crashed as error:
            raise Found(f"{case.leaves.names[n]} has no data: {error}") from error
        if has_data:
            # As a rule the fake kernel has answered, and real devices meet in a kernel.
            raise (Found if case.strict else Noted)(
                f"{case.leaves.names[n]} has no data, and the result has"
            )
    if refusal:
        raise refusal


@checks("indices")
def _(case: Case) -> None:
    """So far outside that reading there ends the process."""
    far = {torch.int32: 10**9 + 7, torch.int64: 10**12 + 7}
    known = [(n, case.leaves.values[n]) for n in case.leaves.tensors()]
    places = [n for n, x in known if x.dtype in far and x.is_cpu and x.numel()]
    if not places or not case.leaves.floating():
        raise Skipped("it takes no tensor of indices on the CPU")
    if not can_isolate():
        raise Skipped("this process cannot fork, and the operator may end it")
    refusal = None
    for n, sign in itertools.product(places, (1, -1)):
        x = case.leaves.values[n].detach().clone().contiguous()
        last, was = x.view(-1)[-1:], x.view(-1)[-1].item()
        last.fill_(sign * far[x.dtype])
        try:
            isolated(lambda n=n, x=x: _call_with(case, n, x), seconds=5)
        except Refused as why:
            refusal = why
        except Crashed as error:
            if "SIG" in str(error):  # others may only take long
                raise (Found if case.strict else Noted)(
                    f"{case.leaves.names[n]} with {last.item()} for {was} is {error}: "
                    "with a smaller number, it reaches other memory and raises nothing"
                ) from error
    if refusal:
        raise refusal


def _call_with(case: Case, place: int, x: Tensor) -> None:
    faulthandler.disable()  # pytest's would print where the process ends
    if sys.platform == "linux":  # what is no index may be a size
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0])
        most = used * resource.getpagesize() + (1 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    case.call(case.leaves.copies().replaced({place: x}))


def _without_data(case: Case, place: int) -> bool:
    """Whether a result has data though this argument has none."""
    leaves = case.leaves.copies().mapped(lambda x: x.to("meta"), [place])
    return any(x.device.type != "meta" for x in case.call(leaves).tensors())


@checks("every element written")
def _(case: Case) -> None:
    case.once_known()
    _nothing_left_out(case, case.leaves)
    _fills_its_arguments(case)
    if case.leaves.floating() == case.leaves.tensors():
        begin = time.monotonic()
        case.call(case.leaves.copies())
        once = time.monotonic() - begin  # long, for each row, in Triton's interpreter
        changes = values.changes(case.leaves)[:1] + [
            {size: values.LARGE}
            for size in values.sizes(case.leaves)
            if once * values.LARGE / size < 2
        ]
        for what, leaves in values.in_other_sizes(case.leaves, changes):
            _nothing_left_out(case, leaves, f", {what}")


def _nothing_left_out(case: Case, leaves: Leaves, where: str = "") -> None:
    try:
        with filled_memory(False):  # the caller may have it filled
            expected = case.call(leaves.copies()).kept()
        with filled_memory():
            actual = case.call(leaves.copies()).kept()
            noise = case.noise_of(leaves, actual)
    except Refused:
        if not where:
            raise
        return  # it takes no such size
    what = f"where new memory holds NaN{where}"
    case.compare(actual, what, expected, noise, eps=case.eps)


@contextlib.contextmanager
def filled_memory(fill: bool = True) -> Iterator[None]:
    """New memory holds NaN, or the largest integer, until somebody writes to it."""
    was = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = fill
    if fill:
        torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was, warn_only=warned)
        torch.utils.deterministic.fill_uninitialized_memory = filled


def _fills_its_arguments(case: Case) -> None:
    """An operator that returns nothing has to write, and as a rule everywhere."""
    if case.expected.results and case.expected.tensors():
        return
    declared = _declared(case)
    for n in declared:
        left = _left_alone(case, n)
        name = case.leaves.names[n]
        if left.all() and len(declared) == 1:
            raise Found(
                f"{name} is declared mutable, and nothing is written or returned"
            )
        ends = left.flatten()
        count = int(ends.sum())
        if 0 < count < ends.numel() // 2 and ends[-count:].all() and _is_whole(case, n):
            raise Found(
                f"the last {count} of {ends.numel()} elements of {name} are not written"
            )


def _declared(case: Case) -> list[int]:
    """The places of the arguments that the operator may write, or writes."""
    if overload(case.operator) is None:
        return list(case.facts.written)
    [(func, args, kwargs)] = case.registered()
    return sorted(annotated(func, Leaves.of(Sample(args, kwargs)))[0])


def _left_alone(case: Case, place: int) -> Tensor:
    """The elements of an argument that stay what they were, whatever they were."""
    left = None
    numbers = torch.nan_to_num(case.leaves.values[place].detach())
    for was in (numbers, values.other_values(numbers)):
        leaves = case.leaves.copies().replaced({place: was.clone()})
        case.call(leaves)
        same = leaves.values[place] == was
        left = same if left is None else left & same
    return left


def _is_whole(case: Case, place: int) -> bool:
    """Whether another argument has as many elements, and none is an index or a mask."""
    leaves = case.leaves
    others = [leaves.values[n] for n in leaves.tensors() if n != place]
    plain = all(values.is_arithmetic(x) for x in others)
    numbers = any(isinstance(v, int) for v in leaves.values)
    same = any(x.shape == leaves.values[place].shape for x in others)
    return plain and same and not numbers

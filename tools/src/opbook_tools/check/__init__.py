"""Find faults of an operator that raise no error.

Each check calls the operator in a way that its author may not have thought of, and
compares with an ordinary call, or with a reference. An operator that raises an
exception for such a call refuses it, and nothing is wrong, because its caller notices.
In a test::

    @pytest.mark.parametrize("arguments", SAMPLES)
    def test_nothing_is_silently_wrong(arguments):
        opbook_tools.check.check(mine.add, arguments, reference=torch.add)
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

# They register the checks in this order: causes come before their consequences.
# isort: off
from opbook_tools.check import registration
from opbook_tools.check import memory  # noqa: F401
from opbook_tools.check import numbers  # noqa: F401
from opbook_tools.check import state  # noqa: F401
from opbook_tools.check import derivatives
from opbook_tools.check import transforms

# isort: on
from opbook_tools.check.case import ALONE, CHECKS, Case, facts_of, quiet
from opbook_tools.check.errors import (
    BadSample,
    Crashed,
    Found,
    Noted,
    Refused,
    Skipped,
    in_one_process,
    returned_once,
)
from opbook_tools.check.isolate import isolated, lost_device, stream
from opbook_tools.check.values import Leaves
from opbook_tools.sample import Sample

__all__ = ["CHECKS", "BadSample", "Result", "check", "each", "prepare", "results"]

PLAIN = "plain call"
TIMEOUT = 60.0
VERDICTS = {Found: "WRONG", Refused: "refuses", Skipped: "skipped", Noted: "note"}


@dataclasses.dataclass(frozen=True)
class Result:
    """What one check said of one sample."""

    name: str
    verdict: str  # ok, refuses, WRONG, skipped or note
    text: str = ""
    trace: str = ""
    failed: bool = False  # the check itself could not be run


def check(operator: Callable, arguments: Any, **options: Any) -> None:
    """Run all checks on one operator with one sample.

    A check that the operator refuses by an exception counts as passed.

    Args:
        operator: What is checked.
        arguments: A tuple of arguments, or a Sample.
        **options: As for `results`.

    Raises:
        AssertionError: A check found something; the message lists all findings.
        BadSample: The operator cannot be called with the sample.
    """
    found = [
        f"{name}: {text}"
        for name, verdict, text in results(operator, arguments, **options)
        if verdict == "WRONG"
    ]
    if found:
        raise AssertionError("\n".join(found))


def results(
    operator: Callable,
    arguments: Any,
    *,
    reference: Callable | None = None,
    **options: Any,
) -> Iterator[tuple[str, str, str]]:
    """Run all checks; yield the name, the verdict and an explanation of each.

    The verdict is "ok", "refuses" (the operator raised), "WRONG", "note", or "skipped"
    (the check does not apply, for the reason in the explanation). Each check runs in a
    process of its own; one that crashes, or takes too long, is "WRONG".

    Args:
        operator: A function that calls operators, or an operator itself.
        arguments: A tuple of arguments, or a Sample.
        reference: A function that returns the right numbers, for the same arguments.
        **options: nondifferentiable (places of arguments without a gradient), strict
            (a custom_op without forward mode is wrong), sizes (try other sizes though
            they may depend on integer arguments), names (of checks), timeout (seconds),
            device (where copies of the arguments are checked, such as "cuda").

    Raises:
        BadSample: The operator cannot be called with the sample.
    """
    for found in each(operator, arguments, reference=reference, **options):
        yield found.name, found.verdict, found.text


def each(
    operator: Callable,
    arguments: Any,
    *,
    reference: Callable | None = None,
    nondifferentiable: Sequence[int | str] = (),
    strict: bool = False,
    sizes: bool = False,
    names: Collection[str] | None = None,
    timeout: float = TIMEOUT,
    device: str | None = None,
) -> Iterator[Result]:
    """Do what `results` does; a result knows its traceback too."""
    if not callable(operator):
        kind = type(operator).__name__
        raise BadSample(f"the operator is of type {kind}, which cannot be called")
    if reference is not None and not callable(reference):
        kind = type(reference).__name__
        raise BadSample(f"the reference is of type {kind}, which cannot be called")
    leaves = Leaves.of(Sample.of(arguments))
    case = Case(operator, leaves, reference, tuple(nondifferentiable), strict, sizes)
    first = _plain(case, timeout, device)
    yield first
    if first.verdict != "ok":
        return
    chosen = CHECKS if names is None else {n: CHECKS[n] for n in CHECKS if n in names}
    if device is None:  # else the compiler would use the GPU before the children do
        prepare(chosen)
    left = list(chosen)
    while left:
        try:
            for result in stream(lambda n=left: _several(case, n, device), timeout):
                left = left[1:]
                yield result
                if lost := lost_device():  # in this process, for good
                    text = f"nothing can use the GPU any more: {lost}"
                    yield from (Result(n, "skipped", text, failed=True) for n in left)
                    return
                if result.verdict == "WRONG":
                    break  # what else the fault has changed stays with that process
        except Crashed as error:
            name, *left = left or [list(chosen)[-1]]  # it ended after the last one
            yield Result(name, "WRONG", f"{error}, called with {leaves.described()}")


def _several(case: Case, names: list[str], device: str | None) -> Iterator[Result]:
    """Run checks in this process, as far as they may share one."""
    case = case.on(device)
    for name in names:
        if name != names[0] and name in ALONE:
            return
        with quiet():
            result = _judged(name, lambda name=name: CHECKS[name](case))
            lost = lost_device()
        yield _without_device(result, lost) if lost else result
        if lost or name in ALONE:
            return


def _without_device(result: Result, lost: str) -> Result:
    """An assertion of a kernel is a refusal; any other end of a kernel is a fault."""
    refuses = "device-side assert" in lost
    verdict = "skipped" if refuses else "WRONG"
    text = f"{lost}: the rest of this check was not run"
    return dataclasses.replace(result, verdict=verdict, text=text, failed=refuses)


def prepare(names: Collection[str] = tuple(CHECKS)) -> None:
    """Import what checks need, once and before the processes that need it."""
    if "autograd key" in names:
        registration.prepare()
    if "forward mode" in names:
        derivatives.prepare()
    if "torch.compile" in names:
        transforms.prepare()


def _plain(case: Case, timeout: float, device: str | None) -> Result:
    """Call the operator, and learn what all checks need to know."""

    def call() -> Any:
        with quiet():
            there = case.on(device)
            with in_one_process():
                there.leaves.copies().call(case.operator)  # here its traceback is whole
            facts = facts_of(there)
            returned_once()
            return facts

    try:
        case.facts = isolated(call, timeout)
    except (Crashed, Found) as error:
        text = f"{error}, called with {case.leaves.described()}"
        return Result(PLAIN, "WRONG", text)
    except Exception as error:
        trace = getattr(error, "child_traceback", "") or traceback.format_exc()
        raise BadSample(
            f"the operator cannot be called with {case.leaves.described()}:\n{trace}"
        ) from error
    return Result(PLAIN, "ok")


def _judged(name: str, run: Callable[[], None]) -> Result:
    try:
        run()
        returned_once()
    except tuple(VERDICTS) as end:
        cause = end.__cause__ or end
        trace = "".join(traceback.format_exception(cause))
        return Result(name, VERDICTS[type(end)], str(end), trace)
    except Crashed as error:  # of a process that the check has started
        return Result(name, "WRONG", str(error))
    except Exception as error:  # of the check, not of the operator: no finding
        text = f"the check itself failed: {type(error).__name__}: {error}"
        return Result(name, "skipped", text, traceback.format_exc(), failed=True)
    return Result(name, "ok")

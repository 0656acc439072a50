"""How a call of the operator and a check may end, beside "ok"."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# The process in which a call began that has returned in another one too.
_returned_twice = multiprocessing.RawValue("q", 0)


class Skipped(Exception):
    """The check does not apply to the operator or to these arguments."""


class Refused(Exception):
    """The operator raised, so that its caller knows."""


class Found(Exception):
    """The operator returned or wrote something wrong, and raised nothing."""


class Noted(Exception):
    """Something that its author should know, and that is not wrong."""


class BadSample(Exception):
    """The operator cannot be called with the arguments of the sample."""


class Crashed(Exception):
    """The process ended by itself, or did not end in time."""


def asked(function: Callable, *arguments: Any, **options: Any) -> Any:
    """What a function of the operator returns; what that raises is a refusal."""
    try:
        with in_one_process():
            return function(*arguments, **options)
    except (Found, Noted, Refused, Skipped):
        raise
    except Exception as error:
        raise Refused(line(error)) from error


@contextlib.contextmanager
def in_one_process() -> Iterator[None]:
    """End a process that the operator forks, should it return there too."""
    here = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != here:
            _returned_twice.value = here
            os._exit(0)


def returned_once() -> None:
    """Raise Found if a child of this process has ended so."""
    end = time.monotonic() + 0.5
    with contextlib.suppress(ChildProcessError, AttributeError):  # it has no child
        while _returned_twice.value != os.getpid() and time.monotonic() < end:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            time.sleep(0.01)
    if _returned_twice.value == os.getpid():
        raise Found("it forks a process, and returns in that one too")


def unless_all_refuse(calls: Iterable[Callable[[], Any]]) -> None:
    """Make each call; if the operator raises each time, it refuses."""
    refusal, called = None, False
    for call in calls:
        try:
            call()
            called = True
        except Refused as why:
            refusal = refusal or why
    if refusal and not called:
        raise refusal


def line(error: BaseException) -> str:
    """The first line of what an exception says."""
    lines = filter(None, map(str.strip, str(error).splitlines()))
    return f"{type(error).__name__}: {next(lines, '')}".removesuffix(": ")

"""What a check may end with, beside nothing at all, which is "ok"."""

from __future__ import annotations


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


def line(error: BaseException) -> str:
    """The first line of what an exception says."""
    lines = filter(None, map(str.strip, str(error).splitlines()))
    return f"{type(error).__name__}: {next(lines, '')}".removesuffix(": ")

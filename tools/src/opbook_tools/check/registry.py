"""The checks by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from opbook_tools.check.case import Case

Check = Callable[[Case], None]
CHECKS: dict[str, Check] = {}
# Those that nothing may run before, or after, in a process.
ALONE: set[str] = set()


def checks(name: str, *, alone: bool = False) -> Callable[[Check], Check]:
    """Make a function the check of this name."""

    def register(run: Check) -> Check:
        CHECKS[name] = run
        ALONE.update([name] if alone else [])
        return run

    return register

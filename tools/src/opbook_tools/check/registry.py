"""The checks by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from opbook_tools.check.case import Case

Check = Callable[[Case], None]
CHECKS: dict[str, Check] = {}


def checks(name: str) -> Callable[[Check], Check]:
    """Make a function the check of this name."""

    def register(run: Check) -> Check:
        CHECKS[name] = run
        return run

    return register

"""What a run leaves out: what is missing here, and combinations of parameters."""

from collections.abc import Hashable
from itertools import combinations

import pytest


def missing(item: pytest.Item) -> str:
    """What a test needs that is not here."""
    needs = (mark.args for mark in item.iter_markers("needs"))
    return next((f"need {what}" for what, here in needs if not here), "")


def identity(value: object) -> tuple:
    """What tells a value from others: 1 and True are two."""
    return type(value), value if isinstance(value, Hashable) else id(value)


def pairs(item: pytest.Item) -> set:
    """Each two parameters of a test, with their values."""
    if not hasattr(item, "callspec"):
        return {item}
    params = item.callspec.params.items()
    values = [(name, identity(value)) for name, value in params]
    function = item.nodeid.partition("[")[0]
    return {(function, *pair) for pair in combinations(values, min(2, len(values)))}


def every_pair(items: list[pytest.Item]) -> set[pytest.Item]:
    """Few combinations in which each pair of two parameters' values occurs.

    Most faults depend on two values at most. tests/mutants.py runs these combinations
    alone, so a planted fault that needs another one survives there.
    """
    found, seen, chosen = {item: pairs(item) for item in items}, set(), set()
    for least in range(10, 0, -1):  # first those that have many pairs which none had
        for item, new in found.items():
            if len(new - seen) >= least:
                chosen.add(item)
                seen |= new
    return chosen

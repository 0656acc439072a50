"""Of the combinations of parameters, those that run without --all."""

from itertools import combinations, product
from types import SimpleNamespace

import pytest

from selection import every_pair, missing


class Item(SimpleNamespace):
    """What is asked of an item of pytest."""

    __hash__ = object.__hash__


def items(*values: tuple) -> list[Item]:
    """A test for each combination of the parameters "0", "1", ..."""
    params = [dict(zip("0123", each, strict=False)) for each in product(*values)]
    return [
        Item(nodeid=f"test[{each}]", callspec=SimpleNamespace(params=each))
        for each in params
    ]


def pairs_in(items) -> set:
    each = (combinations(item.callspec.params.items(), 2) for item in items)
    return {pair for pairs in each for pair in pairs}


def test_every_pair_occurs_in_few_combinations():
    every = items((1, 2, 3), "abc", (None, "x"), (4.0, 5.0))
    chosen = every_pair(every)
    assert pairs_in(chosen) == pairs_in(every)
    assert 9 <= len(chosen) <= 12 < len(every) == 36


@pytest.mark.parametrize("values", [(), [(1, True, 1.0)], [(1, 2, 3), ("a", "b")]])
def test_none_of_two_parameters_or_fewer_is_left_out(values):
    every = items(*values)
    assert every_pair(every) == {*every}


def test_a_test_without_parameters_runs():
    assert len(every_pair([Item(nodeid="one"), Item(nodeid="two")])) == 2


def test_what_is_here_is_not_missing():
    def item(*marks):
        return Item(iter_markers=lambda name: [m for m in marks if m.name == name])

    assert missing(item(pytest.mark.all.mark)) == ""
    gpu, tool = pytest.mark.needs("a GPU", False), pytest.mark.needs("nm", True)
    assert missing(item(tool.mark)) == ""
    assert missing(item(tool.mark, gpu.mark)) == "need a GPU"

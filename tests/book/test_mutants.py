"""The lists of mutants fit the sources that they break."""

from pathlib import Path

import pytest

import mutants

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mutant", mutants.load(), ids=lambda mutant: mutant.name)
def test_changes_one_place(mutant):
    text = (ROOT / mutant.file).read_text()
    assert text.count(mutant.old) == 1
    assert mutant.old != mutant.new

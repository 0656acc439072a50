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
    # Tests of a GPU alone are not collected where there is none.
    assert mutant.gpus or "and cuda" not in mutant.tests


def who_tests(file: str) -> list[str]:
    return mutants.Mutant("any", file, "old", "new").arguments()


def test_who_looks_for_a_fault():
    assert who_tests("csrc/rms_norm/rms_norm.h") == ["tests/test_rms_norm_kernel.py"]
    assert "tests/test_rms_norm_backward_kernel.py" in who_tests("csrc/rms_norm/grid.h")
    assert who_tests("csrc/neg/neg_op.cpp") == ["tests/test_neg.py"]
    assert who_tests("csrc/linear_gelu/linear_gelu.h") == ["tests/test_linear_gelu.py"]
    with pytest.raises(ValueError, match=r"there is no tests/test_other\*\.py"):
        who_tests("csrc/other/other.h")

"""opbook check finds planted faults, and nothing in the operators of this library."""

import re
import sys
import time
import tomllib
from pathlib import Path

import pytest
import torch

import opbook
import registry
from proof.evidence import store
from proof.files import load

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools" / "src"))
from opbook_tools import check  # noqa: E402  found through the line above

PAGE = "page:trouble/silent_wrong_answers"
SOURCES = ROOT / "examples_src/sources/check"
faults, cheats = load(SOURCES / "faults.py"), load(SOURCES / "cheats.py")
PLANTED = tomllib.loads((SOURCES / "planted.toml").read_text())["fault"]


def wrong(operator, arguments, **options) -> dict[str, str]:
    found = check.results(operator, arguments, **options)
    return {name: text for name, verdict, text in found if verdict == "WRONG"}


# There, opcheck compares no strides of tensors on the CPU.
before_2_13 = pytest.mark.xfail(torch.__version__ < "2.13", reason="PyTorch < 2.13")
STRIDES = "promises contiguous memory"
FOUND = [name for name in faults.FAULTS if name != STRIDES]


@pytest.mark.parametrize("name", [*FOUND, pytest.param(STRIDES, marks=before_2_13)])
def test_a_planted_fault_is_found(name):
    torch.manual_seed(0)
    expected, operator, arguments = faults.FAULTS[name]
    assert expected in wrong(operator, arguments, names=[expected], strict=True)


# Their numbers are right, so that only a clock can tell.
RIGHT = {"a memo that knows of each change", "pytorch under another name"}


@pytest.mark.parametrize("name", cheats.CHEATS)
def test_a_cheat_passes_the_usual_test_and_not_the_check(name, monkeypatch):
    monkeypatch.setattr("time.perf_counter", time.perf_counter)  # restored at the end
    operator, x = cheats.CHEATS[name]
    found = check.results(operator, (x,), reference=cheats.softmax)
    assert any(each[1] == "WRONG" for each in found) is (name not in RIGHT)
    assert cheats.usual_test(operator, x)


# One for each operator; the page runs all.
QUICK = (
    "last element is not written",
    "fake kernel has the argument's strides",
    "weight is cached by its address",
    "fake kernel has another shape",
    "two calls differ",
)


@pytest.mark.parametrize("what", QUICK)
def test_a_fault_in_an_operator_that_was_not_written_for_it(what, tmp_path):
    triton = pytest.importorskip("triton")
    if not triton.knobs.runtime.interpret:
        pytest.skip("the kernels run in Triton's interpreter")
    [fault] = [fault for fault in PLANTED if fault["what"] == what]
    planted = load(SOURCES / "planted.py")
    assert planted.found_by(PLANTED.index(fault), fault, str(tmp_path))


def test_where_its_page_ran_each_fault_was_found_and_nothing_else():
    [said] = [o.text for o in store().best(PAGE).outputs if "(no fault)" in o.text]
    found = dict(re.findall(r"^\w+ +(\S.*?)  +(\S.*)$", said, re.MULTILINE))
    missed = {fault["what"] for fault in PLANTED if fault.get("missed")}
    assert found.keys() == {"(no fault)", *(fault["what"] for fault in PLANTED)}
    assert {what for what in found if found[what] == "-"} == {"(no fault)", *missed}
    assert len(re.findall(r"\(no fault\) +-$", said, re.MULTILINE)) == 5


@pytest.mark.parametrize("name", registry.NOT_IN_PLACE)
def test_nothing_is_found_in_an_operator_of_this_library(name):
    arguments = registry.sample(name).made(torch.randn)
    assert wrong(getattr(opbook, name), arguments) == {}


def test_a_finding_is_an_error_in_a_test():
    _, operator, arguments = faults.FAULTS["loses the gradient"]
    with pytest.raises(AssertionError, match="gradient: the result depends on"):
        check.check(operator, arguments)


def reads_what_nobody_wrote(x):
    """Right, but where new memory holds NaN."""
    return 2 * x + 0 * torch.empty_like(x)


def test_new_memory_is_filled_with_nan():
    assert "every element written" in wrong(reads_what_nobody_wrote, (faults.X,))

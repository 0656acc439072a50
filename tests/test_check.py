"""opbook check finds planted faults, and nothing in the operators of this library."""

import importlib.util
import sys
import time
import tomllib
from pathlib import Path

import pytest
import torch

import opbook
import registry

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools" / "src"))
from opbook_tools import check  # noqa: E402  found through the line above


def loaded(name: str):
    """A script beside the page that shows it."""
    path = ROOT / "examples_src" / "sources" / "check" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


faults, cheats = loaded("faults"), loaded("cheats")
PLANTED = tomllib.loads((ROOT / "examples_src/sources/check/planted.toml").read_text())


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


@pytest.fixture
def planted():
    triton = pytest.importorskip("triton")
    if not triton.knobs.runtime.interpret:
        pytest.skip("the kernels run in Triton's interpreter")
    return loaded("planted")


# One for each operator. The others need --all: without it, the faults above are what
# each check finds.
QUICK = {
    "last element is not written",
    "fake kernel has the argument's strides",
    "weight is cached by its address",
    "fake kernel has another shape",
    "two calls differ",
}


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(n, marks=() if fault["what"] in QUICK else pytest.mark.all)
        for n, fault in enumerate(PLANTED["fault"])
    ],
)
def test_a_fault_in_an_operator_that_was_not_written_for_it(planted, number, tmp_path):
    fault = PLANTED["fault"][number]
    found = planted.found_by(number, fault, str(tmp_path))
    assert bool(found) is not fault.get("missed", False)


@pytest.mark.all  # half a minute; the operators below are right too
def test_nothing_is_found_where_none_is_planted(planted, tmp_path):
    for number, nothing in enumerate(planted.AS_THEY_ARE, len(PLANTED["fault"])):
        assert planted.found_by(number, nothing, str(tmp_path)) == ""


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

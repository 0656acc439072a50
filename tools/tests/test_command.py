"""The exit status of opbook check, what it prints, and the plugin for pytest."""

import json
import os
import subprocess
import sys

import pytest

from opbook_tools import cli

pytest_plugins = ["pytester"]

MODULE = """
import torch

X = torch.linspace(-2, 2, 24).reshape(4, 6)
SAMPLES = [(X,), (X[:1],)]
EMPTY = []
TOO_MANY = [(X, X, X)]
NO_TUPLE = [X]

def double(x):
    return 2 * x

def flat(x):
    return 2 * x.as_strided((x.numel(),), (1,)).view(x.shape)

def divides(): return 1 / 0

def leaves(*args): raise SystemExit(0)

def refuses(x): raise ValueError("no")

def refuses_autocast(x):
    if torch.is_autocast_enabled("cpu"): raise ValueError("no")
    return 2 * x

def ends(x): import os; os._exit(1)

NUMBER = 5
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    name = "mine_" + "".join(filter(str.isalnum, tmp_path.name))
    (tmp_path / f"{name}.py").write_text(MODULE)
    return name


def run(module: str, operator: str, samples: str, *options: str) -> int:
    return cli.main(["check", f"{module}:{operator}", f"{module}:{samples}", *options])


STRIDES = ("--select", "strides")


@pytest.mark.parametrize(
    ("operator", "samples", "status"),
    [
        ("double", "SAMPLES", 0),
        ("flat", "SAMPLES", 1),
        ("double", "TOO_MANY", 2),
        ("double", "NO_TUPLE", 2),
        ("double", "EMPTY", 2),
        ("double", "divides", 2),
        ("double", "leaves", 2),
        ("gone", "SAMPLES", 2),
        ("torch.ops.aten.neg", "SAMPLES", 0),
        ("torch.ops.aten.gone", "SAMPLES", 2),
    ],
)
def test_the_exit_status_tells(module, capsys, operator, samples, status):
    assert run(module, operator, samples, *STRIDES) == status
    assert ("opbook check:" in capsys.readouterr().err) is (status == 2)


@pytest.mark.parametrize(
    "options",
    [
        ("--select", "two devices"),
        ("--select", "reference", "--reference", "refuses"),
        ("--select", "reference", "--reference", "NUMBER"),
        ("--select", "strides", "--timeout", "0"),
    ],
)
def test_what_checks_nothing_is_misuse(module, capsys, options):
    *others, last = options
    last = f"{module}:{last}" if "--reference" in others else last
    assert run(module, "double", "SAMPLES", *others, last) == 2
    assert "opbook check:" in capsys.readouterr().err


def test_checks_that_are_all_refused_are_misuse(module, capsys):
    assert run(module, "refuses_autocast", "SAMPLES", "--select", "autocast") == 2
    assert "nothing was checked" in capsys.readouterr().err


def test_an_operator_that_ends_its_process_at_once_is_a_finding(module):
    assert run(module, "ends", "SAMPLES", *STRIDES) == 1


@pytest.mark.parametrize("end", ["raise SystemExit(0)", "import os; os._exit(0)"])
def test_an_import_that_ends_python_is_misuse(module, tmp_path, capsys, end):
    (tmp_path / f"{module}_ends.py").write_text(end)
    assert run(f"{module}_ends", "double", "SAMPLES") == 2
    assert "cannot import" in capsys.readouterr().err


def test_a_failure_of_a_check_is_its_own_status(module, monkeypatch, capsys):
    from opbook_tools import check

    def fails(case):
        raise ZeroDivisionError("of the check")

    monkeypatch.setitem(check.CHECKS, "strides", fails)
    assert run(module, "double", "SAMPLES", *STRIDES) == 3
    out = capsys.readouterr().out
    assert "failed" in out
    assert "WRONG" not in out


def test_an_unknown_check_is_misuse(module, capsys):
    assert run(module, "double", "SAMPLES", "--skip", "stride") == 2
    assert "there is no check 'stride'" in capsys.readouterr().err


def test_what_is_expected_is_no_finding_and_has_to_come(module, capsys):
    expected = "strides: argument 0"
    assert run(module, "flat", "SAMPLES", *STRIDES, "--expect", expected) == 0
    assert run(module, "double", "SAMPLES", *STRIDES, "--expect", expected) == 1
    assert f"did not come: {expected}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "status"),
    [("argument", 0), ("argument 0, trans", 1), ("transposed", 1), ("argument 0:", 1)],
)
def test_what_is_expected_begins_a_finding_with_whole_words(module, text, status):
    options = (*STRIDES, "--expect", f"strides: {text}")
    assert run(module, "flat", "SAMPLES", *options) == status


@pytest.mark.parametrize(("end", "status"), [(">&-", 0), ("> /dev/full", 3)])
def test_an_output_that_takes_nothing_does_not_change_the_status(module, end, status):
    names = f"{module}:double {module}:SAMPLES --select strides"
    command = f"{sys.executable} -m opbook_tools.cli check {names} {end}"
    path = os.pathsep.join(["", *sys.path])
    done = subprocess.run(command, shell=True, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == status


def test_a_module_is_imported_before_triton(tmp_path):
    text = "import sys; assert 'triton' not in sys.modules"
    (tmp_path / "early.py").write_text(text)
    path = os.pathsep.join(sys.path)
    command = f"{sys.executable} -m opbook_tools.cli check early:sys early:gone".split()
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert "has no attribute 'gone'" in done.stderr


def test_json_holds_what_the_lines_say(module, capsys, monkeypatch):
    monkeypatch.delenv("OPBOOK_SITE", raising=False)
    run(module, "flat", "SAMPLES", *STRIDES, "--json")
    said = json.loads(capsys.readouterr().out)
    [wrong, *_] = [each for each in said["results"] if each["verdict"] == "WRONG"]
    assert (wrong["sample"], wrong["check"]) == (0, "strides")
    assert wrong["page"] == "explain/strides of Opbook"


def test_github_shows_a_finding_as_an_annotation(module, capsys):
    run(module, "flat", "SAMPLES", *STRIDES, "--github")
    assert "::error title=opbook check, strides::" in capsys.readouterr().out


TESTS = """
import opbook_tools
import {module} as mine

@opbook_tools.samples(mine.{operator}, mine.SAMPLES, names=["strides", "two devices"])
def test_it(opbook_check):
    opbook_check()
"""


@pytest.fixture
def run_tests(module, pytester, monkeypatch):
    """Run `TESTS` in a process of its own, which torch needs, and read how they end."""
    # Where opbook-tools is installed, pytest would load the plugin a second time.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    path = os.pathsep.join([str(pytester.path), *sys.path])
    monkeypatch.setenv("PYTHONPATH", path)

    def run_tests(text: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(text)
        pytester.makeconftest("pytest_plugins = ['opbook_tools.pytest_plugin']")
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)

    return run_tests


@pytest.mark.parametrize(("operator", "failed"), [("double", 0), ("flat", 2)])
def test_the_plugin_makes_a_test_of_each_check_and_sample(
    module, run_tests, operator, failed
):
    done = run_tests(TESTS.format(module=module, operator=operator))
    done.assert_outcomes(passed=4 - failed, failed=failed, skipped=2)


@pytest.mark.parametrize(
    ("has", "gets"),
    [("test_it(opbook_check)", "test_it(check)"), ("@opbook_tools.samples", "# ")],
)
def test_the_decorator_and_its_argument_need_each_other(module, run_tests, has, gets):
    text = TESTS.format(module=module, operator="double")
    done = run_tests(text.replace(has, gets))
    assert "needs the argument opbook_check" in done.stdout.str()


def test_the_plugin_works_with_xdist_and_writes_junit(module, run_tests, pytester):
    pytest.importorskip("xdist")
    text = TESTS.format(module=module, operator="flat")
    done = run_tests(text, "-p", "xdist", "-n", "2", "--junitxml", "report.xml")
    done.assert_outcomes(passed=2, failed=2, skipped=2)
    report = (pytester.path / "report.xml").read_text()
    assert 'name="test_it[strides-0]"' in report
    assert "argument 0, transposed: the result" in report

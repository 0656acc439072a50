"""opbook new makes the starter's project, from a clone and from a wheel."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from opbook_tools import borrowed, cli

TOOLS = Path(__file__).resolve().parents[1]


def files(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_a_project_has_the_names_that_were_asked_for(tmp_path, capsys):
    project = tmp_path / "mykernels"
    assert cli.main(["new", str(project), "--operator", "reglu"]) == 0
    assert "Made the package mykernels" in capsys.readouterr().out
    assert "csrc/reglu.h" in files(project)
    assert not [name for name in files(project) if "swiglu" in name]


def test_an_option_that_the_starter_does_not_know_is_misuse(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["new", "--no-such-option"])
    assert end.value.code == 2
    assert "opbook new" in capsys.readouterr().err


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The files of a wheel, far from the repository."""
    pytest.importorskip("setuptools", minversion="77.0.3")
    folder = tmp_path_factory.mktemp("wheel")
    command = "setup.py -q egg_info --egg-base {0} build --build-base {0}/build"
    command = f"{command} bdist_wheel --dist-dir {{0}}".format(folder)
    subprocess.run([sys.executable, *command.split()], cwd=TOOLS, check=True)
    [made] = folder.glob("*.whl")
    assert made.name.endswith("-py3-none-any.whl")
    zipfile.ZipFile(made).extractall(folder / "site")
    return folder / "site"


def test_the_wheel_has_what_is_borrowed_and_nothing_that_was_made(wheel):
    copies = wheel / "opbook_tools" / "borrowed"
    assert (copies / "toolchain.py").read_bytes() == borrowed.find(
        "toolchain.py"
    ).read_bytes()
    starter = {name for name in files(copies / "starter") if "__pycache__" not in name}
    assert starter == files(copies / "starter")
    assert {"new.py", "cpp/setup.py", "cpp/csrc/module.cpp"} < starter


def test_the_wheel_works_without_the_repository(wheel, tmp_path):
    command = [sys.executable, "-m", "opbook_tools.cli"]
    options = {"cwd": tmp_path, "env": os.environ | {"PYTHONPATH": str(wheel)}}
    options |= {"check": True, "capture_output": True}
    subprocess.run([*command, "new", "mine", "--operator", "reglu"], **options)
    assert "csrc/reglu.h" in files(tmp_path / "mine")
    subprocess.run([*command, "--help"], **options)

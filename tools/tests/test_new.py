"""opbook new makes the starter's project, from a clone and from a wheel."""

import os
import shutil
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


def test_who_stops_reading_sees_no_traceback(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    environment = os.environ | {"PYTHONPATH": str(TOOLS / "src")}
    command = [sys.executable, "-m", "opbook_tools.cli", "new", "mine"]
    command += ["--operator", "reglu"]
    options = {"cwd": tmp_path, "env": environment, "stdout": writer}
    done = subprocess.run(command, **options, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def make(what: str, source: Path, folder: Path) -> Path:
    """Let setuptools make a wheel or an sdist in a folder, and nothing elsewhere."""
    pytest.importorskip("setuptools", minversion="77.0.3")
    folder.mkdir(exist_ok=True)
    command = f"setup.py -q egg_info --egg-base {folder} build --build-base {folder}/b"
    command = f"{command} {what} --dist-dir {folder}"
    subprocess.run([sys.executable, *command.split()], cwd=source, check=True)
    [made] = [path for path in folder.iterdir() if path.suffix in {".whl", ".gz"}]
    return made


def unpacked(wheel: Path) -> Path:
    assert wheel.name.endswith("-py3-none-any.whl")
    zipfile.ZipFile(wheel).extractall(wheel.parent / "site")
    return wheel.parent / "site"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The files of a wheel, far from the repository."""
    return unpacked(make("bdist_wheel", TOOLS, tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="module")
def wheel_of_sdist(tmp_path_factory):
    """The same, made from an sdist that lies far from the repository too."""
    folder = tmp_path_factory.mktemp("sdist")
    shutil.unpack_archive(make("sdist", TOOLS, folder), folder / "source")
    [source] = (folder / "source").iterdir()
    return unpacked(make("bdist_wheel", source, folder / "wheel"))


def test_the_wheel_has_what_is_borrowed_and_nothing_that_was_made(wheel):
    copies = wheel / "opbook_tools" / "borrowed"
    assert (copies / "toolchain.py").read_bytes() == borrowed.find(
        "toolchain.py"
    ).read_bytes()
    starter = {name for name in files(copies / "starter") if "__pycache__" not in name}
    assert starter == files(copies / "starter")
    assert {
        "new.py",
        "cpp/setup.py",
        "rows/csrc/rows.h",
        "triton_elementwise/LICENSE",
    } < starter


def test_the_sdist_makes_the_same_wheel(wheel, wheel_of_sdist):
    package = "opbook_tools"
    assert files(wheel / package) == files(wheel_of_sdist / package)


def test_the_wheel_works_without_the_repository(wheel_of_sdist, tmp_path):
    command = [sys.executable, "-m", "opbook_tools.cli"]
    environment = os.environ | {"PYTHONPATH": str(wheel_of_sdist)}
    options = {"cwd": tmp_path, "env": environment}
    options |= {"check": True, "capture_output": True}
    new = [*command, "new", "mine"]
    subprocess.run([*new, "--operator", "blend", "--kind", "rows"], **options)
    assert {"csrc/blend.h", "csrc/rows.h"} < files(tmp_path / "mine")
    subprocess.run([*new, "--add", "mean", "--kind", "inplace"], **options)
    assert {"csrc/mean.h", "csrc/inplace.h"} < files(tmp_path / "mine")
    subprocess.run([*command, "--help"], **options)

"""A stranger's walk: the guide alone makes an operator of another name, elsewhere.

An empty folder gets the files that the pages of the guide offer (``{step-files}``) and
nothing else of the project, under other names. The commands and the Python of the pages
are then run there, in order, in an environment of its own.
"""

import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from environment import BOOK, without

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs" / "guide").glob("[0-9]*.md"))
# What runs the pages is the book's, not the reader's: pytest with the book's own rules.
RUNNER = (
    "conftest.py",
    "src/opbook/toolchain.py",  # the engine finds compilers through it
    *(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "docs" / "_ext" / "proof").rglob("*")
        if path.suffix in (".py", ".bash")
    ),
)
STEP_FILES = re.compile(r"^`{3,}\{step-files\} (.*)$", re.MULTILINE)
# The operator's name, where it is not PyTorch's: F.rms_norm stays.
OURS = re.compile(r"(?<!F\.)(?<!functional\.)(?<!torch\.)(?<!aten\.)rms_norm")


def renamed(text: str) -> str:
    """The same with an operator and a package of other names."""
    text = OURS.sub("row_norm", text)
    return text.replace("opbook", "mykernels").replace("OPBOOK", "MYKERNELS")


def offered() -> list[str]:
    """The files that the pages name, in the order in which the reader meets them."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    return [name for names in STEP_FILES.findall(text) for name in names.split()]


def without_other_operators(text: str) -> str:
    """The package's ``__init__`` with the import and the export of the one operator."""
    imports = re.compile(r"^from mykernels\.ops\.(?!row_norm)\w+ import (.*)\n", re.M)
    others = {name for names in imports.findall(text) for name in names.split(", ")}
    for name in others:
        text = text.replace(f'"{name}", ', "")
    return imports.sub("", text)


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """The folder after the reader has typed everything."""
    folder = tmp_path_factory.mktemp("walk")
    pages = [page.relative_to(ROOT).as_posix() for page in PAGES]
    texts = {name: (ROOT / name).read_text("utf-8") for name in (*offered(), *pages)}
    files = {renamed(name): renamed(text) for name, text in texts.items()}
    files |= {name: (ROOT / name).read_text("utf-8") for name in RUNNER}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    init = folder / "src" / "mykernels" / "__init__.py"
    init.write_text(without_other_operators(init.read_text()))
    (folder / "README.md").write_text("The reader's own.\n")
    (folder / "LICENSE").write_text("The reader's own.\n")
    return folder


@pytest.fixture(scope="module")
def python(project) -> Path:
    """An environment that sees PyTorch and pytest, and not this project."""
    home = project / "env"
    venv.create(home)
    packages = sysconfig.get_path("purelib", vars={"base": str(home)})
    outside = sysconfig.get_path("purelib")
    Path(packages, "outside.pth").write_text(f"{outside}\n")
    return home / "bin" / "python"


def run(project: Path, *command: object) -> subprocess.CompletedProcess:
    environment = without(*BOOK, "PYTHONPATH", "DIST_EXTRA_CONFIG", "PYTEST_")
    return subprocess.run(
        list(map(str, command)), cwd=project, env=environment, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def test_the_guide_offers_each_file_once():
    names = offered()
    assert len(names) == len(set(names))
    needed = {p.relative_to(ROOT).as_posix() for p in ROOT.glob("csrc/rms_norm/*")}
    assert needed <= set(names)


@pytest.mark.skipif(sys.platform != "linux", reason="the guide is for Linux")
def test_a_stranger_arrives(project, python):
    install = (python, "-m", "pip", "install", "-q", "--no-build-isolation")
    done = run(project, *install, "--no-deps", "-e", ".")
    assert done.returncode == 0, done.stdout
    done = run(project, python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "docs")
    assert done.returncode == 0, done.stdout

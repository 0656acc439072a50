"""Every operator has its places in the repository, and its page says what they are."""

import importlib
import importlib.util
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import opbook
import registry
from environment import HAS_RUFF, WITH_RUFF, without
from proof.files import load

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted(path.name for path in (ROOT / "csrc").iterdir() if path.is_dir())


def without_page(function: str, docs: Path) -> str:
    """What to write if no page has the function's source; or nothing."""
    file = Path(inspect.getsourcefile(getattr(opbook, function)))
    source = f"src/opbook/ops/{file.name}"
    if any(source in page.read_text() for page in docs.rglob("*.md")):
        return ""
    return (
        f"no page shows {source}: write docs/howto/{function}.md with a block "
        "{step-files}, and list the page in docs/howto/index.md"
    )


@pytest.mark.parametrize("function", registry.FUNCTIONS)
def test_a_page_shows_every_function(function, tmp_path):
    assert without_page(function, ROOT / "docs") == ""
    assert f"write docs/howto/{function}.md" in without_page(function, tmp_path)


@pytest.mark.parametrize("folder", FOLDERS)
def test_faults_are_planted_in_every_folder(folder):
    file = ROOT / "tests" / "faults" / f"{folder}.toml"
    assert file.exists(), f"write {file.relative_to(ROOT)}: the faults of csrc/{folder}"
    for fault in tomllib.loads(file.read_text())["mutant"]:
        count = (ROOT / fault["file"]).read_text().count(fault["old"])
        assert count == 1, (
            f"{fault['name']}: {fault['file']} has its text {count} times"
        )


def test_a_missing_sample_is_named_with_its_line(monkeypatch):
    find = registry.sample.__wrapped__  # the function without its cache
    monkeypatch.delitem(importlib.import_module("test_rms_norm").SAMPLES, "rms_norm")
    with pytest.raises(LookupError) as error:
        find("rms_norm")
    assert "tests/test_rms_norm.py" in str(error.value)
    assert '"rms_norm": Sample(eager, input=..., weight=..., eps=...),' in str(
        error.value
    )


def test_an_operator_that_no_sample_calls_is_named(monkeypatch):
    monkeypatch.setattr(registry, "calls", dict)
    with pytest.raises(
        LookupError, match="no sample calls opbook::rms_norm with a tens"
    ):
        registry.arguments("rms_norm", "weight")


NAMES = {
    "shrink_values": "",
    "rms_norm": "is taken",  # by an operator of csrc/
    "double": "is taken",  # by a word of the copied code
    "class": "is reserved",
    "shrink-values": "must be",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_new_operator_gets_a_free_name(name):
    here = load(ROOT / "examples_src" / "sources" / "contribute" / "here.py")
    if NAMES[name]:
        with pytest.raises(SystemExit, match=NAMES[name]):
            here.renamed(name)
    else:
        assert Path("csrc", name, f"{name}.cu") in here.renamed(name)


# A toy operator, in a copy of the repository, by the commands of the page -----------

NAME = "squash_scores"
NOX = os.environ.get("OPBOOK_NOX", sys.executable)
HAS_NOX = sys.executable != NOX or importlib.util.find_spec("nox") is not None
needs_nox = pytest.mark.needs("nox", HAS_NOX)
TESTS = ("tests/test_every_operator.py", "tests/test_support.py")
TESTS += ("tests/book/test_contribute.py",)


class Copy:
    """A copy of the repository, with an environment of its own beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.python = folder / "copy", folder / "env" / "bin" / "python"
        made = "build .nox .git .venv *.so *.egg-info __pycache__".split()
        shutil.copytree(ROOT, self.folder, ignore=shutil.ignore_patterns(*made))
        command = [sys.executable, "-m", "venv", "--without-pip", folder / "env"]
        subprocess.run(command, check=True)
        (packages,) = folder.glob("env/lib/*/site-packages")
        found = [path for path in sys.path if path.endswith("site-packages")]
        (packages / "found.pth").write_text("\n".join(found))

    def run(self, *command: str | Path) -> subprocess.CompletedProcess:
        """Run a command, without what this process's own tests depend on."""
        kept = without("PROOF_", "COVERAGE_", "PYTEST_", "OPBOOK_", "TRITON_INTERPRET")
        ours = {"OPBOOK_PYTHON": str(self.python), "OPBOOK_HIDE": "nvcc clang"}
        ours |= {"PATH": WITH_RUFF, "PYTHONPATH": "docs/_ext"}
        return subprocess.run(
            [*map(str, command)],
            cwd=self.folder,
            env=kept | ours,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def nox(self, session: str) -> subprocess.CompletedProcess:
        """Run the command of the page that begins with ``nox -s SESSION``."""
        page = (ROOT / "docs" / "howto" / "contribute.md").read_text()
        (command,) = re.findall(rf"\| `nox (-s {session} -- [^`]*NAME[^`]*)` \|", page)
        return self.run(NOX, "-m", "nox", *shlex.split(command.replace("NAME", NAME)))


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Copy:
    """A copy in which the page's first commands have added a toy operator."""
    copy = Copy(tmp_path_factory.mktemp("contribute"))
    for session in ("new", "tests"):
        done = copy.nox(session)
        assert done.returncode == 0, done.stdout
    assert re.search(r"\d\d passed", done.stdout)
    return copy


@needs_nox
@pytest.mark.needs("ruff", HAS_RUFF)
@pytest.mark.all  # it builds the library: some minutes
def test_the_style_of_a_new_operator(copy):
    for command in ("format", "check"):  # the page says to format first
        done = copy.run("ruff", command)
        assert done.returncode == 0, done.stdout


@needs_nox
@pytest.mark.all  # it builds the library: some minutes
def test_the_page_of_a_new_operator(copy):
    for session in ("prove", "page"):
        done = copy.nox(session)
        assert done.returncode == 0, done.stdout
    assert (
        f"opbook.{NAME}"
        in (copy.folder / "build/html/howto" / f"{NAME}.html").read_text()
    )


@needs_nox
@pytest.mark.all  # it builds the library: some minutes
def test_the_benchmark_of_a_new_operator(copy):
    done = copy.nox("bench")
    assert done.returncode in (0, 1), done.stdout  # 1: slower than eager
    assert re.search(rf"^{NAME} .*(pass|slower than eager)$", done.stdout, re.MULTILINE)


# The file, a text in it, what takes its place, and what a failing test says. Without a
# text, the file is taken away.
FORGOTTEN = {
    "sample": (
        "tests/test_NAME.py",
        'SAMPLES = {"NAME": Sample(eager, input=("rows", "hidden"), cap=2.0)}',
        "SAMPLES = {}",
        'test_NAME.py the line\nE +"NAME": Sample\\(eager, input=..., cap=...\\),',
    ),
    "argument": (
        "tests/test_NAME.py",
        'input=("rows", "hidden"), ',
        "",
        "SAMPLES of tests/test_NAME.py has no tensor input",
    ),
    "export": (
        "src/opbook/__init__.py",
        ', "NAME"',
        "",
        "no sample calls opbook::NAME at all.* __all__ of src/opbook/__init__.py",
    ),
    "fake kernel": (
        "src/opbook/ops/NAME.py",
        '@torch.library.register_fake("opbook::NAME")',
        "",
        "opbook::NAME has no kernel for Meta: write torch.library.register_fake in its",
    ),
    "gradient": (
        "src/opbook/ops/NAME.py",
        '_call_backward = register_autograd("opbook::NAME_backward", _refuse)',
        "_call_backward = torch.ops.opbook.NAME_backward",
        "opbook::NAME_backward has no kernel for Autograd: write opbook.forward_mode",
    ),
    "test": ("tests/test_NAME.py", "", "", "has no test: write tests/test_NAME.py"),
    "faults": ("tests/faults/NAME.toml", "", "", "write tests/faults/NAME.toml"),
    "page": ("docs/howto/NAME.md", "", "", "write docs/howto/NAME.md with a block"),
}


@needs_nox
@pytest.mark.all  # it builds the library: some minutes
@pytest.mark.parametrize("what", FORGOTTEN)
def test_a_forgotten_place_is_named(copy, what):
    file, old, new, words = (text.replace("NAME", NAME) for text in FORGOTTEN[what])
    path = copy.folder / file
    text = path.read_text()
    assert text.count(old) == 1 or not old
    try:
        path.write_text(text.replace(old, new)) if old else path.unlink()
        pytests = (
            copy.python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            NAME,
        )
        done = copy.run(*pytests, *TESTS)
    finally:
        path.write_text(text)
    assert done.returncode == 1, done.stdout
    assert re.search(words, done.stdout), done.stdout

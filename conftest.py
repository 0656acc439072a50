"""How pytest reads the book: its pages, its gallery scripts and its notebooks.

tests/ needs only the way to `proof` from here. The rest are items of their own: a
``{run}`` block of a page, a script of examples_src/ in a process of its own, a notebook
through nbval. Of the pages, those of the guide and those whose record is stale are run;
with ``--all`` every page is. ``pytest`` needs torch and pytest only; what lacks another
tool is skipped by name.
"""

import importlib.util
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
DOCS = ROOT / "docs"
SKIPPED = 77  # the exit status of a script that lacks a tool; its last line says which
TIMEOUT = 600

# Threads that spin while they wait take the cores from what runs beside them. OpenMP
# reads it when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
sys.path.insert(0, str(DOCS / "_ext"))
from proof import page, prove, units  # noqa: E402  found through the line above
from proof.evidence import store  # noqa: E402

# A page may run pytest itself, which must not read that page again.
IN_A_PAGE = "PROOF_FOLDER" in os.environ


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run all pages and cases")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "nbval") and not IN_A_PAGE:
        config.option.nbval = True
        sanitise = ROOT / "tutorials" / "sanitize.cfg"
        if sanitise.exists() and not config.option.nbval_sanitize_with:
            config.option.nbval_sanitize_with = str(sanitise)
        if config.option.nbval_cell_timeout is None:
            config.option.nbval_cell_timeout = TIMEOUT


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out what the site's build generates, and what needs a browser."""
    made = (DOCS / "examples", DOCS / "tutorials", ROOT / "build", DOCS / "_ext")
    return True if collection_path in {*made, ROOT / "tests" / "browser"} else None


def pytest_collect_file(file_path: Path, parent: pytest.Collector):
    if IN_A_PAGE:
        return None
    if is_script(file_path):
        # One that is named on the command line comes as a module: see below.
        named = parent.session.isinitpath(file_path)
        return None if named else ScriptFile.from_parent(parent, path=file_path)
    if file_path.suffix == ".md" and DOCS in file_path.parents:
        return PageFile.from_parent(parent, path=file_path)
    if file_path.suffix == ".ipynb" and not importlib.util.find_spec("nbval"):
        return NotebookFile.from_parent(parent, path=file_path)
    return None


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector):
    """Keep pytest from importing a script that is named on the command line."""
    if is_script(module_path):
        return ScriptFile.from_parent(parent, path=module_path)
    return None


def is_script(path: Path) -> bool:
    gallery = ROOT / "examples_src"
    in_gallery = path.parent in (gallery, gallery / "benchmarks")
    return in_gallery and bool(re.match(r"\d\d_.*\.py$", path.name))


@cache
def environment() -> dict[str, str]:
    """The environment of a script: Triton's interpreter where there is no GPU."""
    import torch

    variables = {"MPLBACKEND": "Agg", "PYTHONUNBUFFERED": "1"} | dict(os.environ)
    if not torch.cuda.is_available():
        variables.setdefault("TRITON_INTERPRET", "1")
    return variables


class Failure(Exception):
    """A message for the reader of the report, without the frames of this file."""


class BookItem(pytest.Item):
    def skip(self, reason: str) -> None:
        pytest.skip(f"{self.nodeid}: {reason}")

    def repr_failure(self, excinfo, style=None):
        if isinstance(excinfo.value, Failure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)


class ScriptFile(pytest.File):
    def collect(self):
        yield Script.from_parent(self, name="script")


class Script(BookItem):
    """A gallery script: it runs alone and ends with status 0."""

    def runtest(self) -> None:
        try:
            done = subprocess.run(
                [sys.executable, str(self.path)],
                cwd=ROOT,
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Failure(f"{self.path.name}: no end after {TIMEOUT} s") from error
        output = done.stdout.rstrip()
        self.add_report_section("call", "output", output)
        if done.returncode == SKIPPED:
            self.skip(output.rpartition("\n")[2] or "a tool is missing")
        if done.returncode:
            raise Failure(f"{self._failing_line(output)}\n{output}")

    def _failing_line(self, output: str) -> str:
        """The last line of the script that the traceback names."""
        lines = re.findall(rf'File "{re.escape(str(self.path))}", line (\d+)', output)
        name = self.path.relative_to(ROOT).as_posix()
        if not lines:
            return f"{name} failed"
        text = self.path.read_text(encoding="utf-8").splitlines()[int(lines[-1]) - 1]
        return f"{name}:{lines[-1]}: {text.strip()}"

    def reportinfo(self):
        return self.path, 0, self.path.name


class PageFile(pytest.File):
    """A page of the book: its blocks share one process and run in order."""

    results = None

    def collect(self):
        blocks = page.parse(self.path)
        if blocks and (self.config.option.all or self.is_named() or self.must_run()):
            for number, block in enumerate(blocks):
                name = f"line {block.line} {block.language}"
                yield Block.from_parent(self, name=name, block=block, number=number)

    def is_named(self) -> bool:
        """Whether the command line names this page and not only its folder."""
        return self.session.isinitpath(self.path)

    def must_run(self) -> bool:
        """Whether no run of another machine says how the page ends."""
        what = f"page:{page.name(self.path)}"
        known = store().elsewhere(what)
        is_told = known and units.is_of(known, self.path)
        return what.startswith(prove.RUN_HERE) or not is_told

    def result(self, number: int) -> page.Result:
        if self.results is None:
            record = store().here(f"page:{page.name(self.path)}")
            if not (record and units.is_of(record, self.path)):
                record = units.run_page(self.path)
                if not units.problem(record):
                    store().save(record)
            self.results = record.outputs
        return self.results[number]


class Block(BookItem):
    """One ``{run}`` block: it ends as the page says."""

    def __init__(self, *, block: page.Block, number: int, **kwargs) -> None:
        super().__init__(**kwargs)
        self.block, self.number = block, number

    def runtest(self) -> None:
        result = self.parent.result(self.number)
        if result.status == "not_run":
            self.skip(result.reason)
        if problem := page.problem(self.block, result):
            line = self.block.line + (result.line or 1) - 1
            raise Failure(f"{self.path.relative_to(ROOT)}:{line}: {problem}")

    def reportinfo(self):
        return self.path, self.block.line - 1, self.name


class NotebookFile(pytest.File):
    def collect(self):
        yield Notebook.from_parent(self, name="notebook")


class Notebook(BookItem):
    def runtest(self) -> None:
        self.skip("needs nbval (pip install nbval)")

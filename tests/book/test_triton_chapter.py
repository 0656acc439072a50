"""The Triton chapter as its readers copy it: with no compiled library, no clone."""

import ast
import re
import shutil
from pathlib import Path

import pytest

from alone import run, without_library
from proof import blocks, page

pytest.importorskip("triton")
pytestmark = pytest.mark.all  # the book runs the same blocks, in the clone
ROOT = Path(__file__).resolve().parents[2]
CHAPTER = [
    *sorted((ROOT / "docs/triton").glob("[1-7]_*.md")),
    ROOT / "docs/triton/14_autotune.md",
]
HELPERS = '''\
import re, traceback


def failed_as_the_page_says(pattern, error):
    """Whether a block failed with its text, or says that it does not apply here."""
    text = "".join(traceback.format_exception(error))
    skipped = isinstance(error, SystemExit) and str(error).startswith("skip")
    if not skipped and not re.search(pattern, text):
        raise RuntimeError(f"not as the page says, {pattern!r}") from error


class DidNotFail(BaseException):
    """A block that is meant to fail has not."""


'''


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    return without_library(tmp_path_factory.mktemp("package"))


def copied(path: Path) -> str:
    """The Python blocks of a page in one file; around those meant to fail, a try."""
    parts = [HELPERS]
    for block in page.parse(path):
        if block.language != "python" or not all(map(blocks.has, block.needs)):
            continue
        # What a reader sees in a notebook, a file does not print: the code is the same.
        parts.append(block.code if block.fails is None else expected_to_fail(block))
    return "\n\n".join(parts) + "\n"


def expected_to_fail(block: page.Block) -> str:
    """The block in a `try`; a multi-line string in it would not keep its text."""
    ast.parse(block.code)
    indented = re.sub(r"^(?=.)", "    ", block.code, flags=re.MULTILINE)
    return (
        f"try:\n{indented}\n    raise DidNotFail({block.line})\n"
        "except DidNotFail:\n    raise\n"
        "except BaseException as error:\n"
        f"    failed_as_the_page_says({block.fails!r}, error)"
    )


@pytest.mark.parametrize("path", CHAPTER, ids=lambda path: path.stem)
def test_a_page_copied_into_one_file_runs(path, package, tmp_path):
    file = tmp_path / "copied.py"
    file.write_text(copied(path))
    done = run(tmp_path, package, str(file))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert {entry.name for entry in tmp_path.iterdir()} == {"copied.py"}


def test_the_test_file_of_the_chapter_runs_where_it_is_copied(package, tmp_path):
    shutil.copy(ROOT / "examples_src/sources/test/test_scale.py", tmp_path)
    done = run(tmp_path, package, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout[-2000:]
    assert "skipped" not in done.stdout

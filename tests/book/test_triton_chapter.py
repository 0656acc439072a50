"""The Triton chapter as its readers copy it: with no compiled library, no clone."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from environment import without
from proof import page
from proof.run import _has

pytest.importorskip("triton")
ROOT = Path(__file__).resolve().parents[2]
CHAPTER = sorted((ROOT / "docs/triton").glob("[1-7]_*.md"))
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
    """A folder with the package without its library and nothing else."""
    folder = tmp_path_factory.mktemp("package")
    hidden = shutil.ignore_patterns("_C*", "__pycache__")
    shutil.copytree(ROOT / "src/opbook", folder / "opbook", ignore=hidden)
    return folder


def run(folder: Path, package: Path, *arguments: str):
    """Run Python in a folder of its own, where nobody chose Triton's interpreter."""
    command = [sys.executable, *arguments]
    variables = without("TRITON_", "PROOF_", "COVERAGE_", "PYTHON")
    variables["PYTHONPATH"] = str(package)
    return subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False
    )


def copied(path: Path) -> str:
    """The Python blocks of a page in one file; around those meant to fail, a try."""
    parts = [HELPERS]
    for block in page.parse(path):
        if block.language != "python" or not all(map(_has, block.needs)):
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


def test_what_is_written_in_cpp_says_how_to_build_it(package, tmp_path):
    done = run(tmp_path, package, "-c", "import opbook; opbook.rms_norm")
    assert "ImportError: opbook.rms_norm is written in C++, and the" in done.stderr
    assert "pip install --no-build-isolation -e ." in done.stderr
    assert f"run: python {package}/opbook/doctor.py" in done.stderr
    done = run(tmp_path, package, "-c", "from opbook import add_one")
    assert "ImportError: opbook.add_one is written in C++" in done.stderr


def test_a_library_that_does_not_load_is_an_error_at_once(package, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(package / "opbook", broken / "opbook")
    (broken / "opbook" / "_C.abi3.so").write_bytes(b"\x7fELF")
    done = run(tmp_path, broken, "-c", "import opbook")
    assert "ImportError" in done.stderr
    assert f"run: python {broken}/opbook/doctor.py" in done.stderr


def test_a_copied_module_cannot_take_the_name_of_the_original(package, tmp_path):
    source = (package / "opbook/triton/scale.py").read_text()
    (tmp_path / "mine.py").write_text(source.replace("x * factor", "x + factor"))
    code = "import opbook.triton, mine"
    done = run(tmp_path, package, "-c", f"import os; {interpreted()}{code}")
    assert "mine cannot define opbook_triton::scale: opbook.triton.scale" in done.stderr


def test_the_package_does_not_take_a_name_that_is_defined(package, tmp_path):
    first = (
        "import torch\n"
        "@torch.library.custom_op('opbook_triton::scale', mutates_args=())\n"
        "def scale(x: torch.Tensor, factor: float) -> torch.Tensor: return x + factor\n"
    )
    code = f"import os; {interpreted()}\n{first}import opbook.triton"
    done = run(tmp_path, package, "-c", code)
    assert "opbook_triton::scale: another package has already" in done.stderr


def interpreted() -> str:
    return "os.environ['TRITON_INTERPRET'] = '1'; "

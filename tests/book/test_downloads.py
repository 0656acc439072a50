"""The zip of the repository, and the line of a page that says where its blocks run."""

import io
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="needs Sphinx")
from test_proof import CONF, Book

import downloads
from proof import files, page, projects

ROOT = Path(__file__).resolve().parents[2]
ZIP = "opbook-repository"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(io.BytesIO(downloads.repository())) as archive:
        archive.extractall(folder)
    return folder / ZIP


def names(folder: Path) -> set[str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix() for path in files}


def test_the_zip_has_what_the_readme_needs_and_nothing_that_was_made(unpacked):
    found = names(unpacked)
    assert {"README.md", "noxfile.py", ".gitignore", "starter/new.py"} < found
    assert (unpacked / "README.md").read_bytes() == (ROOT / "README.md").read_bytes()
    assert not [name for name in found if name.startswith(("build/", ".git/"))]
    assert not [name for name in found if "__pycache__" in name]


def test_a_copy_without_git_makes_the_same_zip(unpacked, monkeypatch):
    known = sorted(names(unpacked))
    monkeypatch.setattr(files, "ROOT", unpacked)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(unpacked.parent))
    for made in ("build/a.txt", ".venv/b.py", "src/opbook/_C.so", "csrc/__pycache__/c"):
        path = unpacked / made
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert files.tracked() == known


def test_a_file_that_git_does_not_know_is_not_published(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ROOT", tmp_path)
    for name in ("known.txt", "secret.txt", "gone.txt", "made.so"):
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("*.so\n")
    for command in (["init", "-q"], ["add", ".gitignore", "known.txt", "gone.txt"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (tmp_path / "gone.txt").unlink()
    assert files.tracked() == [".gitignore", "known.txt"]
    assert files.tracked(new=True) == [".gitignore", "known.txt", "secret.txt"]


# The line.


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Book:
    made = Book(tmp_path_factory.mktemp("downloads"))
    made.write("docs/conf.py", CONF.replace('"topics"]', '"topics", "downloads"]'))
    made.write("data.txt", "read")
    made.page("""\
        ```{toctree}
        alone
        reads
        shows
        talks
        tool
        ```
    """)
    made.page("```{run} python\n1 + 1\n```\n", "alone")
    made.page("```{run} python\nopen('data.txt').read()\n```\n", "reads")
    shown = "```{literalinclude} ../data.txt\n```\n"
    made.page(f"```{{run}} python\n2\n```\n\n{shown}", "shows")
    made.page("No block.\n", "talks")
    made.page("```{run} python\n:needs: git\n3\n```\n", "tool")
    made.passes()
    return made


def line(book: Book, name: str) -> str:
    html = (book.root / "build" / "html" / f"{name}.html").read_text(encoding="utf-8")
    found = re.search(r'<div class="stands-on.*?<p>(.*?)</p>', html, re.DOTALL)
    return found[1] if found else ""


def test_a_page_says_where_its_blocks_run(book):
    link = f'<a class="reference external" href="{ZIP}.zip">'
    cost = r", (without|on) a GPU, in (a second|\d+ seconds)\. "
    anywhere = f"The blocks of this page run in any folder{cost}"
    assert re.fullmatch(anywhere, line(book, "alone"))
    assert line(book, "reads").startswith(
        f"The blocks of this page run in the folder of {link}"
    )
    files = f"The files that it shows are in {re.escape(link)}"
    assert re.match(anywhere + files, line(book, "shows"))
    assert re.search(rf"</a> \(.*\){cost}$", line(book, "reads"))
    assert re.match(
        anywhere.replace("folder", "folder, with .*>git<.*"), line(book, "tool")
    )
    assert line(book, "talks") == ""
    assert (book.root / "build" / "html" / f"{ZIP}.zip").exists()


def test_a_page_that_was_run_without_a_clock_names_no_time(book):
    for kept in book.root.rglob("page/alone.json"):
        record = json.loads(kept.read_text(encoding="utf-8"))
        record["detail"].pop("seconds")
        kept.write_text(json.dumps(record), encoding="utf-8")
    book.passes("-E")
    assert re.search(r"any folder, (without|on) a GPU\. $", line(book, "alone"))


def test_with_an_address_a_page_names_no_zip(book):
    book.passes("-E", "-D", "repository=https://git.example/book")
    assert ZIP not in line(book, "reads")
    assert 'href="https://git.example/book">this book' in line(book, "reads")


@pytest.mark.parametrize(
    ("files", "needs"),
    [
        ({"csrc/rms_norm/rms_norm_op.cpp"}, True),
        ({"csrc/rms_norm/rms_norm_op.cpp", "src/opbook/triton/scale.py"}, True),
        ({"csrc/rms_norm/rms_norm_op.cpp", "src/opbook/triton/rms_norm.py"}, False),
        ({"csrc/rms_norm/rms_norm.h", "starter/cpp/csrc/swiglu_op.cpp"}, False),
    ],
)
def test_the_library_is_needed_where_its_operators_ran(files, needs):
    assert downloads.needs_library(files) == needs


def test_the_command_of_the_triton_chapter_runs_in_the_download_that_it_names(tmp_path):
    for name, file in projects.state(projects.LAST).items():
        files.write_text(tmp_path / name, file.text)
    text = (ROOT / "docs/triton/index.md").read_text()
    assert "{project-zip}`starter.zip`" in text
    [command] = re.findall(r"`python (new\.py [^`]+)`", text)
    subprocess.run([sys.executable, *command.split()], cwd=tmp_path, check=True)
    assert (tmp_path / "mykernels/tests/test_reglu.py").exists()


def test_a_page_in_a_project_offers_it():
    steps = {path: page.project(path) for path in page.pages()}
    assert len([step for step in steps.values() if step]) > 8
    for path, step in steps.items():
        name = downloads.zip_name(step)
        assert not step or f"{{project-zip}}`{name}`" in path.read_text(), path

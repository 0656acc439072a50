"""The pages as notebooks: cells, outputs, expected failures; some run under nbval."""

import re
import subprocess
import sys
import zipfile
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from environment import BOOK, without

nbformat = pytest.importorskip("nbformat", reason="needs nbformat")
pytest.importorskip("bs4", reason="needs beautifulsoup4")
from test_proof import CONF, READ, Book  # noqa: E402  it skips where Sphinx is missing

from notebooks import drop_gone  # noqa: E402  it needs both

ROOT = Path(__file__).resolve().parents[2]
RUN = Path(__file__).with_name("run_notebooks.py")
SITE = ROOT / "build" / "html" / "_notebooks"
# What only Sphinx reads: a directive, an option of one, a role, a mark of our own.
SYNTAX = re.compile(r"(?m)^\s*([`:~]{3,}\s*\{|:[\w-]+:)|(?<!`)\{[\w:-]+\}`|[\0\1]")
SHOWN = re.compile(r"^ *(```+).*?^ *\1", re.MULTILINE | re.DOTALL)
PAGE = """\
    See {doc}`other` first.

    ```{note}
    Two words.
    ```

    Then this.

    ```{run} python
    print("said")
    6 * 7
    ```

    - A block in a list:

      ```{run} python
      :fails: by zero
      print("before")
      1 / 0
      ```

    ```{run} console
    :varies: no, but it may say so
    $ echo one  # and go on
    $ echo two
    ```

    ```{run} console
    :needs: sh
    $ echo three
    ```

    ```{run} python
    raise SystemExit("skip: no GPU")
    ```

    ```{run} python
    :needs: nbformat
    raise SystemExit(0)
    ```
"""


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Book:
    made = Book(tmp_path_factory.mktemp("notebooks"))
    made.write("docs/conf.py", CONF.replace('"topics"]', '"topics", "notebooks"]'))
    made.write("pyproject.toml", '[dependency-groups]\ntest = ["nbformat==1"]\n')
    made.write("docs/other.md", "---\norphan: true\n---\n# Other page\n")
    made.page(PAGE)
    made.passes(*READ)
    made.unknown = read(made)
    made.passes()
    return made


def read(book: Book) -> tuple[str, list]:
    """The prose and the code cells of the notebook that a build has made."""
    folder = book.root / "build/html/_notebooks"
    assert [path.name for path in folder.iterdir()] == ["index.ipynb"]
    notebook = nbformat.read(folder / "index.ipynb", as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    prose = (cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return "\n".join(prose), code


def test_blocks_become_cells_with_what_they_printed(book):
    _, (setup, said, fails, console, ends) = read(book)
    assert "chdir" not in setup.source  # the page read no file of the repository
    assert [said.source, said.outputs[0].text] == ['print("said")\n6 * 7', "said\n42\n"]
    assert fails.metadata.tags == ends.metadata.tags == ["raises-exception"]
    printed, error = fails.outputs
    assert printed.text == "before\n"
    assert [error.ename, error.evalue] == ["ZeroDivisionError", "division by zero"]
    assert error.traceback[0].startswith("Traceback")
    assert (
        console.source == "%%bash -o pipefail\necho one || exit  # and go on\necho two"
    )
    assert console.outputs[0].text == "one\ntwo\n"
    assert console.metadata.tags == ["nbval-ignore-output"]
    assert "tags" not in said.metadata
    assert ends.source == "# Needs nbformat.\nraise SystemExit(0)"
    assert [cell.execution_count for cell in (setup, said)] == [None, 3]


def test_a_block_of_which_no_run_is_known_is_shown_and_no_cell(book):
    prose, code = book.unknown
    assert len(code) == 1  # the setup
    assert '```python\nprint("said")\n6 * 7\n```\n\nOrigin: not run' in prose


def test_prose_reads_without_sphinx(book):
    prose, _ = read(book)
    assert prose.startswith("# Title\n\n> ")
    assert "See Other page first.\n\n> Note\n> \n> Two words.\n\nThen" in prose
    assert "```console\n$ echo three\n```" in prose  # it needs a tool
    assert '"skip: no GPU")\n```\n\nOrigin: not run' in prose
    assert "said" not in prose
    assert not SYNTAX.search(prose)


def test_links_lead_to_the_site_when_it_has_an_address(book):
    book.passes("-D", "html_baseurl=https://book.example/")
    prose, _ = read(book)
    assert "See [Other page](https://book.example/other.html) first." in prose


# The notebooks of the site.


@pytest.fixture
def site() -> list[Path]:
    if not (found := sorted(SITE.rglob("*.ipynb"))):
        pytest.skip("needs the site (nox -s docs)")
    return found


def test_every_notebook_of_the_site_is_valid(site):
    for path in site:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        prose = (c.source for c in notebook.cells if c.cell_type == "markdown")
        left = [SYNTAX.search(SHOWN.sub("", text)) for text in prose]
        assert not any(left), f"{path.name}: {left}"


def test_a_notebook_runs_and_its_errors_are_those_of_the_page(site):
    """A page with errors; `nox -s notebooks` runs the others too."""
    pytest.importorskip("nbval", reason="needs nbval")
    name = "dispatch/find_what_to_override"
    path = SITE / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if any(output.output_type == "error" for output in cell.get("outputs", [])):
            cell.metadata.tags.append("nbval-check-output")
    copy = ROOT / "build" / "notebooks" / f"{name}.ipynb"
    copy.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, copy)
    # Not the options of this run of pytest, which compare what the cells print.
    command = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-p", "no:xdist"]
    command += ["-c", "/dev/null", "--rootdir", copy.parent, "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--nbval-lax", "--nbval-current-env", copy],
        env=without(*BOOK, "PYTEST_", "CI"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_page_that_is_gone_or_runs_nothing_any_more_loses_its_notebook(tmp_path):
    ran = {"how": "run", "block": None, "result": None}
    metadata = defaultdict(dict, runs={"claims": [ran]})
    metadata["shows"] = {"claims": [{"how": "file"}]}
    env = SimpleNamespace(metadata=metadata)
    for name in ("runs", "shows", "gone"):
        path = tmp_path / "_notebooks" / f"{name}.ipynb"
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
    drop_gone(SimpleNamespace(outdir=tmp_path, env=env), None)
    assert [path.stem for path in tmp_path.rglob("*.ipynb")] == ["runs"]


# run_notebooks.py, on sites with one notebook.


def write(home: Path, name: str, source: str, printed: str, note="", **metadata):
    """A page of a site: one cell with a stored output."""
    outputs = [nbformat.v4.new_output("stream", text=printed)] if printed else []
    cell = nbformat.v4.new_code_cell(
        source, outputs=outputs, metadata=metadata, execution_count=1
    )
    head = nbformat.v4.new_markdown_cell(f"# Title\n\n{note}")
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made = nbformat.v4.new_notebook(cells=[head, cell], metadata={"kernelspec": kernel})
    path = home / "site" / "_notebooks" / "howto" / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(made, path)


def check(home: Path, *options: str) -> tuple[int, str]:
    """The exit status of a run of a site's notebooks, and what it says."""
    command = [sys.executable, RUN, "--site", home / "site", "--pytest=-n0"]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


IGNORED = {"tags": ["nbval-ignore-output"]}
RIGHT = {  # source, stored output, metadata
    "same": ("print(6 * 7)\n7", "42\n7\n", {}),
    "ignored": ("print(6 * 7)", "43\n", IGNORED),
    "lacks": ("# Needs no-such-tool.\n1 / 0", "", {}),
}
WRONG = {
    "other": ("print(6 * 7)", "43\n", {}),
    "nothing": ("print(6 * 7)", "", {}),
    "fails": ("1 / 0", "", {}),
    "fails_ignored": ("1 / 0", "", IGNORED),
}


def test_a_stored_output_is_what_the_cell_prints(tmp_path):
    pytest.importorskip("nbval", reason="needs nbval")
    for name, (source, printed, metadata) in RIGHT.items():
        write(tmp_path, name, source, printed, **metadata)
    status, report = check(tmp_path)
    assert status == 0, report
    assert "3 notebooks, 3 cells: " in report
    for says in ("1 run and compared", "1 run, not compared"):
        assert says in report
    assert "1 skipped: needs no-such-tool" in report


def test_a_stored_output_that_the_cell_does_not_print_is_named(tmp_path):
    pytest.importorskip("nbval", reason="needs nbval")
    for name, (source, printed, metadata) in WRONG.items():
        write(tmp_path, name, source, printed, **metadata)
    status, report = check(tmp_path)
    assert status == 1
    assert "4 notebooks, 4 cells: 4 failed" in report
    failed = re.findall(r"^FAILED \S*howto/(\w+)/\1\.ipynb", report, re.MULTILINE)
    assert sorted(failed) == sorted(WRONG)
    assert "43" in report
    assert report.count("division by zero") >= 2


def test_a_page_has_nothing_but_its_download(tmp_path):
    pytest.importorskip("nbval", reason="needs nbval")
    (tmp_path / "site").mkdir()
    for name in ("opbook-repository", "starter"):
        with zipfile.ZipFile(tmp_path / "site" / f"{name}.zip", "w") as archive:
            archive.writestr(f"{name}/README.md", "")
    files = "import glob, importlib.util as util\n"
    files += "print(util.find_spec('opbook'), *glob.glob('{}*.md'))"
    for note, up, found in [
        ("It needs no other file.", "", "None"),
        ("unpack starter.zip, and", "", "None README.md"),
        ("unpack opbook-repository.zip, and", "../" * 4, "None ../../../../README.md"),
    ]:
        write(tmp_path, "x", files.format(up), f"{found}\n", note=note)
        status, report = check(tmp_path)
        assert status == 0, report


def test_a_cell_that_pytest_left_out_is_not_counted_as_run(tmp_path):
    pytest.importorskip("nbval", reason="needs nbval")
    write(tmp_path, "x", "6 * 7", "42\n")
    found, report = check(tmp_path, "--pytest=-n0 --collect-only")
    assert found == 1
    assert "1 cells: 1 not run" in report


@pytest.mark.parametrize(
    ("shard", "status", "says"),
    [
        ("half", 1, "no such part"),
        ("3/2", 1, "no such part"),
        ("2/2", 2, "no notebook"),
    ],
)
def test_a_part_has_to_have_a_notebook(tmp_path, shard, status, says):
    write(tmp_path, "x", "print(6 * 7)", "42\n")
    found, report = check(tmp_path, "--shard", shard)
    assert found == status
    assert f"--shard {shard}: " in report
    assert says in report


def test_the_table_of_executors_counts_the_cells(site):
    books = [nbformat.read(path, as_version=4) for path in site]
    cells = sum(c.cell_type == "code" for book in books for c in book.cells)
    page = (SITE.parent / "reference" / "ledger.html").read_text(encoding="utf-8")
    assert f"<td>{len(site)}</td><td>{cells:,} cells</td>" in page

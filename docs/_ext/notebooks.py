"""Each page that runs blocks as a notebook, which its header offers for download.

The prose comes from the page's HTML, in which roles, includes and recordings are
resolved. The code cells are the page's blocks with the results of the build.
"""

import re
from functools import cache, partial
from pathlib import Path

import nbformat
from docutils import nodes
from nbformat import NotebookNode, v4

import page_text
from downloads import REPOSITORY, needs_library, needs_path, read_by, zip_name
from proof import machine, page, projects
from proof.files import read_toml, write_text
from proof.page import Block, Result

# A numbered block in the HTML, with the label of its origin.
_BLOCK = re.compile(
    r'<div class="[^"]*" id="block-(\d+)">.*?</pre></div>\s*</div>'
    r'(?:\s*<p class="proof .*?</p>)?',
    re.DOTALL,
)
_LINK_INSIDE = re.compile(r' href="(?!https?:)[^"]*"')
_CELL = "\1"  # on both sides of the number of a block that becomes a cell
_EXIT = re.compile(r"^(raise SystemExit|sys\.exit)\b", re.MULTILINE)
# Where a report begins: an exception without a frame of the page has no first line.
_REPORT = re.compile(
    r"^(Traceback \(most |.+\n\n(The above|During handling of the above) exception)",
    re.MULTILINE,
)

NOTE = "> {project} made this notebook from its page. {place}"
PLACE = "To run it, unpack {zip}{installed}, and save the notebook in its folder."
INSTALLED = ", run `python -m pip install --no-build-isolation -e .` there"
ANYWHERE = "It needs no other file."
FAILS = " A cell with the tag `raises-exception` raises on purpose."
SETUP = """\
import os
import sys

# `python` is the Python of this kernel.
programs = [os.path.dirname(sys.executable), os.environ["PATH"]]
os.environ["PATH"] = os.pathsep.join(programs)"""
GO_THERE = """
from pathlib import Path

# The page ran in the folder that {zip} makes.
folders = [Path.cwd(), *Path.cwd().parents]
root = next((folder for folder in folders if (folder / "{file}").exists()), None)
if root is None:
    raise FileNotFoundError("{file}: unpack {zip}, and save the notebook in its folder")
os.chdir(root)
sys.path.insert(0, str(root / "src"))"""
PATH = '\nos.environ["PYTHONPATH"] = str(root / "src")'
INTERPRET = '\nos.environ.setdefault("TRITON_INTERPRET", "1")  # as on the page'


def write(app, pagename, templatename, context, doctree) -> None:
    """Write the notebook of a page, and tell the template where it is."""
    claims = app.env.metadata[pagename].get("claims", [])
    if app.builder.name != "html" or not (pairs := ran(claims)):
        return
    blocks, results = zip(*pairs, strict=True)
    path = Path(app.env.doc2path(pagename))
    base = app.config.html_baseurl
    address = base and base + app.builder.get_target_uri(pagename)
    cells = list(map(is_cell, blocks, results))
    text = markdown(context["body"], address, claims, cells)
    shown = map(partial(code_cell, page.runs_alone(path)), blocks, results)
    made = notebook(text, [*shown], setup_cells(app, path, blocks))
    nbformat.validate(made)
    context["notebook_file"] = f"_notebooks/{pagename}.ipynb"
    file = Path(app.outdir, context["notebook_file"])
    write_text(file, nbformat.writes(made) + "\n")


def drop_gone(app, exception) -> None:
    """Remove the notebooks of pages that are gone, or run nothing any more."""
    made = Path(app.outdir, "_notebooks")
    for path in made.rglob("*.ipynb"):
        name = path.relative_to(made).with_suffix("").as_posix()
        if not ran(app.env.metadata[name].get("claims", [])):
            path.unlink()


def ran(claims: list[dict]) -> list[tuple[Block, Result]]:
    """The blocks that a page with these claims runs, and their results."""
    ours = (c for c in claims if c["how"] == "run" and not c.get("output"))
    return [(claim["block"], claim["result"]) for claim in ours]


def is_cell(block: Block, result: Result) -> bool:
    """Whether a block is a cell: it ran, and needs g++ and Python packages at most."""
    tools = {need.partition(">=")[0] for need in block.needs} - {"g++", "nm"}
    return result.status != "not_run" and tools <= packages()


@cache
def packages() -> set[str]:
    """The packages that the project's own environments have."""
    groups = read_toml(projects.ROOT / "pyproject.toml")["dependency-groups"]
    named = (entry for group in groups.values() for entry in group)
    return {re.match(r"[\w-]+", name)[0] for name in named if isinstance(name, str)}


def raises(block: Block) -> bool:
    """Whether a block ends with an exception, as an exit with any status does here."""
    return block.fails is not None or bool(_EXIT.search(block.code))


def markdown(html: str, address: str, claims: list[dict], cells: list[bool]) -> str:
    """The page as Markdown, with a mark in place of each block that becomes a cell.

    While the site has no address, a link to another page would lead nowhere.
    """

    def mark(found: re.Match) -> str:
        claim = claims[int(found[1])]
        if claim["how"] != "run" or not cells[claim["number"]]:
            return found[0]
        is_output = claim.get("output")
        return "" if is_output else f"<p>{_CELL}{claim['number']}{_CELL}</p>"

    html = _BLOCK.sub(mark, html)
    html = html if address else _LINK_INSIDE.sub("", html)
    text = page_text.to_markdown(f"<article>{html}</article>", address)
    return page_text.without_marks(text)


def setup_cells(app, path: Path, blocks: list[Block]) -> tuple[str, str]:
    """A note for the reader, and code that goes where the page ran."""
    files = read_by(page.name(path))
    zip, file, installed = "", "", ""
    if step := page.project(path):
        zip, file = zip_name(step), list(projects.state(step))[-1]
    elif files:
        zip, file = REPOSITORY, "csrc/portable.h"
        installed = INSTALLED if needs_library(files) else ""
    place = PLACE.format(zip=zip, installed=installed) if zip else ANYWHERE
    note = NOTE.format(project=app.config.project, place=place)
    if any(map(raises, blocks)):
        note += FAILS
    code = SETUP + (GO_THERE.format(file=file, zip=zip) if zip else "")
    if zip == REPOSITORY and needs_path(files):
        code += PATH
    if not machine.gpus():
        code += INTERPRET  # what a page imports may have a kernel in Triton
    return note, code


def notebook(text: str, shown: list[NotebookNode], setup) -> NotebookNode:
    """Cells of the text and of the blocks; the setup comes below the title."""
    note, code = setup
    title, _, text = text.partition("\n\n")
    prose, *rest = re.split(rf" *{_CELL}(\d+){_CELL}", text)
    head = v4.new_markdown_cell(f"{title}\n\n{note}")
    cells = [head, v4.new_code_cell(code), v4.new_markdown_cell(prose.strip())]
    for number, prose in zip(map(int, rest[::2]), rest[1::2], strict=True):
        cells.append(shown[number])
        cells.append(v4.new_markdown_cell(prose.strip()))
    cells = [cell for cell in cells if cell.source]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"  # the same in each build
        if cell.cell_type == "code" and number > 1:
            cell.execution_count = number  # it ran, and has all that it printed
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def code_cell(times: bool, block: Block, result: Result) -> NotebookNode:
    """A block with its output; one that fails on the page may fail here.

    nbval compares nothing where the output varies, as on each page that shows times.
    """
    magic, source = "", block.code
    if block.language == "console":
        # As on the page, the first command that fails ends the block.
        magic = "%%bash -o pipefail\n"
        source = "\n".join(_or_exit([text for _, text in page.commands(block)]))
    needs = f"# Needs {', '.join(block.needs)}.\n" if block.needs else ""
    tags = ["raises-exception"] * raises(block)
    tags += ["nbval-ignore-output"] * (times or block.varies)
    printed = outputs(block, result)
    return v4.new_code_cell(
        f"{magic}{needs}{source}",
        metadata={"tags": tags} if tags else {},
        outputs=printed,
    )


def _or_exit(commands: list[str]) -> list[str]:
    """Have each command but the last end the cell if it fails."""
    *before, last = commands
    comment = re.compile(r"(  #[^'\"]*)?$")
    return [*(comment.sub(r" || exit\1", text, count=1) for text in before), last]


def outputs(block: Block, result: Result) -> list[NotebookNode]:
    """What a block printed, and its error as Jupyter keeps it."""
    printed, errors = result.text, []
    if result.status == "failed":
        name, message, trace = "SystemExit", result.reason, [result.reason]
        if block.language == "console":
            name = "CalledProcessError"
        elif not _EXIT.search(block.code):
            name, _, message = result.reason.partition(": ")
            report = _REPORT.search(printed)
            start = report.start() if report else 0  # a SyntaxError has no such line
            printed, trace = printed[:start], printed[start:].splitlines()
        name = name.rpartition(".")[2]
        errors = [v4.new_output("error", ename=name, evalue=message, traceback=trace)]
    if printed := printed.rstrip():
        return [v4.new_output("stream", text=f"{printed}\n"), *errors]
    return errors


def highlight_files(app, doctree) -> None:
    """Colour a cell that writes a C++ file as C++."""
    for block in doctree.findall(nodes.literal_block):
        if re.match(r"%%writefile \S+\.(cpp|h)\n", block.astext()):
            block["language"] = "cpp"


def setup(app):
    app.connect("doctree-read", highlight_files)
    app.connect("html-page-context", write)
    app.connect("build-finished", drop_gone)

"""The zips beside the pages, and the line of a page that says which one it stands on.

A record says which files of the repository the code of a page read, so that no page
names its download by hand. The pages of the guide do: theirs are parts of the starter.
"""

import io
import math
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxRole

from proof import page, projects, units
from proof.evidence import store
from proof.files import ROOT, tracked

REPOSITORY = "opbook-repository.zip"
INSTALL = "production/index"  # the page that says how
SHOWN = ("file", "recorded")  # claims of blocks that the page itself does not run


def offer(app, name: str, make: Callable[[], bytes]) -> None:
    """Put a zip beside the pages of each build."""

    def write(app, exception) -> None:
        if exception is None and app.builder.format == "html":
            Path(app.outdir, name).write_bytes(make())

    app.connect("build-finished", write)


def archive(folder: str, contents: Mapping[str, str | bytes]) -> bytes:
    """A zip of files in a folder of their own; the same bytes in each build."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as made:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(f"{folder}/{name}")  # of no date
            entry.external_attr = (0o755 if entry.is_dir() else 0o644) << 16
            made.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return data.getvalue()


@cache
def repository() -> bytes:
    """The whole repository in a zip."""
    contents = {name: (ROOT / name).read_bytes() for name in tracked()}
    # Many pages write into build/, which git does not track.
    return archive(Path(REPOSITORY).stem, contents | {"build/": b""})


class ZipRole(SphinxRole):
    """A link to a zip beside the pages."""

    def run(self) -> tuple[list[nodes.Node], list]:
        return [zip_link(self.env.docname, self.text)], []


class RepositoryRole(SphinxRole):
    """A link to the repository, by these words, or to the zip that stands for it."""

    def run(self) -> tuple[list[nodes.Node], list]:
        return repository_link(self.config, self.env.docname, self.text), []


def zip_name(step: int) -> str:
    """The address of a project's download, from the root of the site."""
    names = {projects.LAST: "starter.zip", projects.EXERCISES: "exercises.zip"}
    return names.get(step, f"starter_step_{step}.zip")


def zip_link(docname: str, name: str) -> nodes.reference:
    address = "../" * docname.count("/") + name
    return nodes.reference("", "", nodes.literal("", name), refuri=address)


def repository_link(config, docname: str, words: str) -> list[nodes.Node]:
    if config.repository:
        return [nodes.reference("", words, refuri=config.repository)]
    size = f" ({len(repository()) / 1e6:.1f}\u00a0MB)"
    return [zip_link(docname, REPOSITORY), nodes.Text(size)]


def read_by(docname: str) -> set[str] | None:
    """The files of the repository that the code of a page read, but its own script.

    Returns:
        None for a page without code, and for one of which there is no record.
    """
    what = units.record_of(docname)
    if not (record := store().best(what)):
        return None
    own = what.partition(":")[2]
    return {name for name in record.inputs if name != own and (ROOT / name).is_file()}


def needs_library(files: set[str]) -> bool:
    """Whether operators in C++ ran: their sources count as read.

    So they do where code of :mod:`opbook.triton` names an operator of the same name.
    """
    sources = (re.fullmatch(r"csrc/(\w+)/\w+_op\.cpp", name) for name in files)
    return any(s and f"src/opbook/triton/{s[1]}.py" not in files for s in sources)


def needs_path(files: set[str]) -> bool:
    """Whether the package was imported, and would do without its library."""
    return "src/opbook/__init__.py" in files and not needs_library(files)


def add_line(app, doctree) -> None:
    """Say below the title where the code of the page runs, and what that takes."""
    docname = app.env.docname
    sections = [*doctree.findall(nodes.section)]
    if not sections:
        return
    if step := page.project(Path(app.env.doc2path(docname))):
        containers = doctree.findall(nodes.container)
        has_head = any("page-head" in found["classes"] for found in containers)
        cost = [] if has_head else [*_cost(app, docname, [])]
        what = nodes.Text("The blocks of this page run in the project of ")
        line = [what, zip_link(docname, zip_name(step)), *cost] if cost else []
    else:
        line = _line(app, docname)
    if line:
        paragraph = nodes.paragraph("", "", *line)
        sections[0].insert(1, nodes.container("", paragraph, classes=["stands-on"]))


def _line(app, docname: str) -> list[nodes.Node]:
    files = read_by(docname)
    is_page = not docname.startswith(("examples/", "tutorials/"))
    what = "The blocks of this page run" if is_page else "This code runs"
    place = repository_link(app.config, docname, "this book's repository")
    if files:
        needed = []
        if needs_library(files):
            address = app.builder.get_relative_uri(docname, INSTALL) + "#install"
            needed = [nodes.reference("", "the library installed", refuri=address)]
        elif needs_path(files):
            needed = [nodes.literal("", "PYTHONPATH=src")]
        cost = _cost(app, docname, needed)
        return [nodes.Text(f"{what} in the folder of "), *place, *cost]
    line = []
    if files is not None and is_page:
        line = [nodes.Text(f"{what} in any folder"), *_cost(app, docname, [])]
    claims = app.env.metadata[docname].get("claims", []) if is_page else []
    if any(claim["how"] in SHOWN and not claim.get("not_run") for claim in claims):
        shown = nodes.Text("The files that it shows are in ")
        line += [shown, *place, nodes.Text(".")]
    return line


def _cost(app, docname: str, needed: list[nodes.Node]) -> Iterator[nodes.Node]:
    """What else the code of a page was given, and how long it took, by its record."""
    if not (record := store().best(units.record_of(docname))):
        return
    tools = _tools(app.env.metadata[docname].get("claims", []))
    needed = needed + [nodes.literal("", tool) for tool in tools]
    for place, one in enumerate(needed):
        last = place and place == len(needed) - 1
        yield nodes.Text(" and " if last else ", " if place else ", with ")
        yield one
    yield nodes.Text(", on a GPU" if record.machine.get("gpu") else ", without a GPU")
    took = record.detail.get("seconds")  # which a run by pytest does not know
    yield nodes.Text(f", in {in_words(took)}. " if took else ". ")


def _tools(claims: list[dict]) -> list[str]:
    """What blocks name as needed."""
    blocks = (claim["block"] for claim in claims if "block" in claim)
    return sorted({need.replace("|", " or ") for b in blocks for need in b.needs})


def in_words(seconds: float) -> str:
    """A duration as a reader plans with it."""
    if seconds < 1.5:
        return "a second"
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{math.ceil(seconds / 60)} minutes"


def setup(app):
    app.setup_extension("proof")
    app.add_config_value("repository", "", "env", types=(str,))
    app.add_role("project-zip", ZipRole())
    app.add_role("repository", RepositoryRole())
    app.connect("doctree-read", add_line)
    offer(app, REPOSITORY, repository)

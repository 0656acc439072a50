"""The zips beside the pages, and the line of a page that says which one it stands on.

A record says which files of the repository the code of a page read, so that no page
names its download by hand. The pages of the guide do: theirs are parts of the starter.
"""

import io
import re
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxRole

from proof import gallery, page
from proof.evidence import store
from proof.files import ROOT, relative, tracked

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
    script = gallery.source_of(docname)
    what = f"page:{docname}"
    if script:
        what = f"script:{relative(script)}"
    elif docname.startswith("tutorials/"):
        what = f"notebook:{docname}.ipynb"
    if not (record := store().get(what) or store().kept(what)):
        return None
    own = what.partition(":")[2]
    return {name for name in record.inputs if name != own and (ROOT / name).is_file()}


def needs_library(files: set[str]) -> bool:
    """Whether operators in C++ ran: their sources count as read."""
    return any(re.fullmatch(r"csrc/\w+/\w+_op\.cpp", name) for name in files)


def needs_path(files: set[str]) -> bool:
    """Whether the package was imported, and would do without its library."""
    return "src/opbook/__init__.py" in files and not needs_library(files)


def add_line(app, doctree) -> None:
    """Say below the title where the code of the page runs."""
    docname = app.env.docname
    sections = [*doctree.findall(nodes.section)]
    if not sections or page.project(Path(app.env.doc2path(docname))):
        return
    if line := _line(app, docname):
        paragraph = nodes.paragraph("", "", *line)
        sections[0].insert(1, nodes.container("", paragraph, classes=["stands-on"]))


def _line(app, docname: str) -> list[nodes.Node]:
    files = read_by(docname)
    is_page = not docname.startswith(("examples/", "tutorials/"))
    what = "The blocks of this page run" if is_page else "This code runs"
    place = repository_link(app.config, docname, "this book's repository")
    if files:
        line = [nodes.Text(f"{what} in the folder of "), *place]
        if needs_library(files):
            address = app.builder.get_relative_uri(docname, INSTALL) + "#install"
            link = nodes.reference("", "the library installed", refuri=address)
            line += [nodes.Text(", with "), link]
        elif needs_path(files):
            line += [nodes.Text(", with "), nodes.literal("", "PYTHONPATH=src")]
        return [*line, nodes.Text(".")]
    if not is_page:
        return []
    line = [nodes.Text(f"{what} in any folder. ")] * (files is not None)
    claims = app.env.proof["claims"].get(docname, ())
    if any(claim["how"] in SHOWN and not claim.get("not_run") for claim in claims):
        shown = nodes.Text("The files that it shows are in ")
        line += [shown, *place, nodes.Text(".")]
    return line


def setup(app):
    app.setup_extension("proof")
    app.add_config_value("repository", "", "env", types=(str,))
    app.add_role("project-zip", ZipRole())
    app.add_role("repository", RepositoryRole())
    app.connect("doctree-read", add_line)
    offer(app, REPOSITORY, repository)
    return {"version": "1", "parallel_read_safe": True}

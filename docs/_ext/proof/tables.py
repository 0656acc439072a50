"""Tables of what all pages hold: drawn when the last page has been read."""

from collections.abc import Callable, Iterable
from html import escape

from docutils import nodes
from sphinx.util.docutils import SphinxDirective


class place(nodes.General, nodes.Element):
    """The place of a table, filled when the page is written."""


def add(app, name: str, html: Callable) -> None:
    """Add a directive; in its place comes what `html` makes of ``app`` and the page."""

    class Place(SphinxDirective):
        def run(self) -> list[nodes.Node]:
            self.env.note_reread()  # any other page may have changed
            self.env.metadata[self.env.docname][name] = True
            return [place(table=name)]

    def show(app, doctree, docname) -> None:
        for node in list(doctree.findall(place)):
            if node["table"] == name:
                node.replace_self(nodes.raw("", html(app, docname), format="html"))

    app.add_node(place, override=True)
    app.add_directive(name, Place)
    app.connect("doctree-resolved", show)


def add_markdown(
    app,
    name: str,
    lines: Callable[[SphinxDirective], Iterable[str]],
    arguments: int = 0,
) -> None:
    """Add a directive with these arguments or more; `lines` makes Markdown of it."""

    class Made(SphinxDirective):
        required_arguments = arguments
        optional_arguments = 100

        def run(self) -> list[nodes.Node]:
            return self.parse_text_to_nodes("\n".join(lines(self)))

    app.add_directive(name, Made)


def link(app, here: str, page: str, text: str, place: str = "") -> str:
    """A link in HTML to a page of the site, at a place of it if there is one."""
    address = app.builder.get_relative_uri(here, page) + f"#{place}" * bool(place)
    return f'<a href="{address}">{escape(text)}</a>'


def file_link(here: str, name: str) -> str:
    """A link in HTML to a file that lies beside the pages."""
    return f'<a href="{"../" * here.count("/")}{name}">{name}</a>'


def table(head: Iterable[str], rows: str, kind: str = "", caption: str = "") -> str:
    """A table in HTML with the names of its columns."""
    cells = "".join(f'<th scope="col">{name}</th>' for name in head)
    kind = f"table {kind}".strip()
    return (
        f'<div class="pst-scrollable-table-container"><table class="{kind}">'
        f"{caption}<thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def row(cells: Iterable[str], head: str = "", attributes: str = "") -> str:
    """A row in HTML; `head` is the text of its first cell, if that names it."""
    first = f'<th scope="row">{head}</th>' if head else ""
    rest = "".join(f"<td>{cell}</td>" for cell in cells)
    return f"<tr{attributes}>{first}{rest}</tr>"


def claims(env) -> dict[str, list[dict]]:
    """What each page claims of its blocks: Sphinx forgets it with the page."""
    return {name: env.metadata[name]["claims"] for name in sorted(env.found_docs)}

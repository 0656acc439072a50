"""Tables of what all pages hold: drawn when the last page has been read."""

from collections.abc import Callable, Iterable

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

"""Tables of what all pages hold: each is known when the last page has been read."""

from collections.abc import Callable

from docutils import nodes
from sphinx.util.docutils import SphinxDirective


class place(nodes.General, nodes.Element):
    """The place of a table, filled when the page is written."""


class Place(SphinxDirective):
    """A directive of the table's name."""

    def run(self) -> list[nodes.Node]:
        pages = self.env.tables[self.name]["pages"]
        if self.env.docname not in pages:
            pages.append(self.env.docname)
        return [place(table=self.name)]


def add(app, name: str, collect: Callable, html: Callable) -> None:
    """Add a table and its directive.

    Args:
        app: the Sphinx application.
        name: the name of the directive.
        collect: makes the table's data of ``app`` and ``env``, at each build.
        html: makes the table of ``app``, the name of its page, and the data.
    """

    def prepare(app) -> None:
        if not hasattr(app.env, "tables"):
            app.env.tables = {}
        app.env.tables.setdefault(name, {"pages": [], "data": None})

    def purge(app, env, docname) -> None:
        pages = env.tables[name]["pages"]
        pages[:] = [page for page in pages if page != docname]

    def update(app, env) -> list[str]:
        """Write the page again when the table has changed."""
        table, data = env.tables[name], collect(app, env)
        changed, table["data"] = data != table["data"], data
        return table["pages"] if changed else []

    def show(app, doctree, docname) -> None:
        for node in list(doctree.findall(place)):
            if node["table"] == name:
                is_html = app.builder.format == "html"
                data = app.env.tables[name]["data"]
                text = html(app, docname, data) if is_html else ""
                node.replace_self(nodes.raw("", text, format="html"))

    app.add_node(place, override=True)
    app.add_directive(name, Place)
    app.connect("builder-inited", prepare)
    app.connect("env-purge-doc", purge)
    app.connect("env-updated", update)
    app.connect("doctree-resolved", show)

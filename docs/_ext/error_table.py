"""``error-table``: the errors that pages of the book meet, each with cause and cure."""

import re
from html import escape
from itertools import groupby
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from proof import page
from proof.evidence import store
from proof.run import blocks_digest


class error_table(nodes.General, nodes.Element):
    """The place of the table, filled when the page is written."""


class ErrorTable(SphinxDirective):
    """Every block that fails on purpose, says why, and did fail in this build."""

    def run(self) -> list[nodes.Node]:
        self.env.error_table["page"] = self.env.docname
        return [error_table()]


def prepare(app) -> None:
    if not hasattr(app.env, "error_table"):
        app.env.error_table = {"page": "", "errors": []}


def purge(app, env, docname) -> None:
    if env.error_table["page"] == docname:
        env.error_table["page"] = ""


def collect(app, env) -> list[str]:
    """Write the page again when an error came, went or changed."""
    found = errors(env)
    changed = found != env.error_table["errors"]
    env.error_table["errors"] = found
    return [env.error_table["page"]] if changed and env.error_table["page"] else []


def errors(env) -> list[tuple[str, int, str, str]]:
    """Page, number of the block among the page's claims, diagnostic, cause."""
    found = []
    for docname in sorted(env.all_docs):
        claims = env.proof["claims"].get(docname, [])
        ours = [(n, c) for n, c in enumerate(claims) if c["how"] == "run"]
        record = store().get(f"page:{docname}")
        if not ours or not record:
            continue
        blocks = page.parse(Path(env.doc2path(docname)))
        if record.detail["blocks"] != blocks_digest(blocks):
            continue  # edited, and not run since
        for number, claim in ours:
            block, result = blocks[claim["block"]], record.outputs[claim["block"]]
            if block.cause and result["status"] == "failed" and not claim.get("output"):
                text = diagnostic(block, result["text"])
                found.append((docname, number, text, block.cause))
    return found


def diagnostic(block: page.Block, text: str) -> str:
    """The line of the output that matched, cut where it gets long."""
    match = re.search(block.fails, text)
    start = text.rfind("\n", 0, match.start()) + 1
    line = text[start:].partition("\n")[0].strip()
    return line if len(line) <= 200 else f"{line[:200]} …"


def show(app, doctree, docname) -> None:
    for node in list(doctree.findall(error_table)):
        html = _html(app, docname) if app.builder.format == "html" else ""
        node.replace_self(nodes.raw("", html, format="html"))


def _html(app, here: str) -> str:
    rows = []
    known = app.env.error_table["errors"]
    for docname, found in groupby(known, lambda error: error[0]):
        address = app.builder.get_relative_uri(here, docname)
        title = escape(app.env.titles[docname].astext())
        for _, number, text, cause in found:
            link = f'<a href="{address}#block-{number}">{title}</a>'
            cells = (f"<code>{escape(text)}</code>", _inline(cause), link)
            rows.append("".join(f"<td>{cell}</td>" for cell in cells))
    head = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("The error says", "Cause and cure", "Seen on")
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f"<p>{len(rows)} errors, each met by a block of this site as it was built.</p>"
        '<div class="pst-scrollable-table-container"><table class="table error-table">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _inline(text: str) -> str:
    """Prose whose `code` is marked as in Markdown."""
    return re.sub(r"`+([^`]+)`+", r"<code>\1</code>", escape(text))


def setup(app):
    app.add_node(error_table)
    app.add_directive("error-table", ErrorTable)
    app.connect("builder-inited", prepare)
    app.connect("env-purge-doc", purge)
    app.connect("env-updated", collect)
    app.connect("doctree-resolved", show)
    return {"version": "1", "env_version": 2, "parallel_read_safe": False}

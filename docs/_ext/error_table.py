"""``error-table``: the errors that pages of the book meet, each with cause and cure.

It has every block that fails on purpose, says why, and did fail in this build.
"""

import re
from html import escape
from itertools import groupby
from pathlib import Path

from proof import page, tables
from proof.evidence import store
from proof.run import blocks_digest


def errors(app, env) -> list[tuple[str, int, str, str]]:
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


def _html(app, here: str, known: list) -> str:
    rows = []
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
    tables.add(app, "error-table", errors, _html)
    return {"version": "1", "env_version": 3, "parallel_read_safe": False}

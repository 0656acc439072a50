"""The ledger: a page and a JSON file with the origin of every block."""

from collections import Counter
from html import escape
from itertools import groupby

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from .origins import KINDS

_NAMES = [kind.replace("_", " ") for kind in KINDS]


class ledger(nodes.General, nodes.Element):
    """The place of the table, filled when the page is written."""


class Ledger(SphinxDirective):
    """``{ledger}``: counts in total and for each page, then every block."""

    def run(self) -> list[nodes.Node]:
        self.env.proof["ledger"] = self.env.docname
        return [ledger()]


def anchor(docname: str) -> str:
    """Where the blocks of a page are on the ledger page."""
    return f"blocks-{nodes.make_id(docname)}"


def table(data: dict, titles: dict[str, str], link, json: str) -> str:
    """The ledger as HTML.

    Args:
        data: what ledger.json holds.
        titles: title of each page.
        link: a function from the name of a page to its address.
        json: the address of ledger.json.
    """
    pages = [(name, list(g)) for name, g in groupby(data["blocks"], _page)]
    head = "".join(f'<th scope="col">{name}</th>' for name in ["page", *_NAMES])
    total = _counts("all pages", data["counts"])
    body = [
        _counts(
            f'<a href="#{anchor(name)}">{escape(titles[name])}</a>',
            Counter(row["origin"] for row in rows),
        )
        for name, rows in pages
    ]
    parts = [
        f'<p>The same table for programs: <a href="{json}">ledger.json</a>.</p>',
        '<div class="pst-scrollable-table-container">',
        f'<table class="table proof-counts"><thead><tr>{head}</tr></thead>',
        f"<tbody>{total}{''.join(body)}</tbody></table></div>",
    ]
    for name, rows in pages:
        parts.append(_blocks(name, rows, titles[name], link(name)))
    return "\n".join(parts)


def _page(row: dict) -> str:
    return row["page"]


def _counts(title: str, counts: dict) -> str:
    cells = "".join(f"<td>{counts.get(kind, 0) or '–'}</td>" for kind in KINDS)
    return f'<tr><th scope="row">{title}</th>{cells}</tr>'


def _blocks(name: str, rows: list[dict], title: str, address: str) -> str:
    columns = ("line", "language", "origin", "targets", "source", "reason")
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    lines = []
    for number, row in enumerate(rows):
        kind = row["origin"] or "unproven"
        place = f'<a href="{address}#block-{number}">{row["line"]}</a>'
        words = (kind.replace("_", " "), ", ".join(row["targets"]), row["source"])
        cells = [place, *map(escape, (row["language"], *words, row["reason"]))]
        cells = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f'<tr class="proof-{kind}">{cells}</tr>')
    return (
        '<details class="proof-blocks">'
        f"<summary>{escape(title)}: {len(rows)} blocks</summary>"
        # Inside, so that a link to it opens the list.
        f'<p id="{anchor(name)}"><a href="{address}">Open the page</a></p>'
        '<div class="pst-scrollable-table-container">'
        f'<table class="table"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div></details>"
    )

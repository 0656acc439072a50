"""The ledger: a page and a JSON file with the origin of every block."""

from collections import Counter
from html import escape
from itertools import groupby
from pathlib import Path

from docutils import nodes

from .files import write_json
from .origins import COLUMNS, Origin, counted, rows


def anchor(docname: str) -> str:
    """Where the blocks of a page are on the ledger page."""
    return f"blocks-{nodes.make_id(docname)}"


def collect(app, env) -> dict:
    """The origin of every block; write ledger.json."""
    claims, origins = env.proof["claims"], env.proof["origins"]
    data = rows(
        (docname, claim, origin)
        for docname in sorted(claims)
        for claim, origin in zip(claims[docname], origins[docname], strict=True)
    )
    write_json(Path(app.outdir, "ledger.json"), data)
    return data


def summary(data: dict) -> list[str]:
    """How many blocks have which origin; for each reason, how many were not run."""
    counts = (f"{number} {column}" for column, number in data["counts"].items())
    skipped = [row for row in data["blocks"] if row["origin"] == "not_run"]
    reasons = Counter(row["reason"] for row in skipped).most_common()
    return [", ".join(counts), *(f"not run: {n}, {reason}" for reason, n in reasons)]


def html(app, here: str, data: dict) -> str:
    """Counts in total and for each page, then every block."""
    titles = {name: title.astext() for name, title in app.env.titles.items()}
    json = "../" * here.count("/") + "ledger.json"
    pages = [(name, list(g)) for name, g in groupby(data["blocks"], _page)]
    head = "".join(f'<th scope="col">{name}</th>' for name in ["page", *COLUMNS])
    total = _counts("all pages", data["counts"])
    body = [
        _counts(
            f'<a href="#{anchor(name)}">{escape(titles[name])}</a>',
            Counter(map(_column, found)),
        )
        for name, found in pages
    ]
    parts = [
        f'<p>The same table for programs: <a href="{json}">ledger.json</a>.</p>',
        '<div class="pst-scrollable-table-container">',
        f'<table class="table proof-counts"><thead><tr>{head}</tr></thead>',
        f"<tbody>{total}{''.join(body)}</tbody></table></div>",
    ]
    for name, found in pages:
        address = app.builder.get_relative_uri(here, name)
        parts.append(_blocks(name, found, titles[name], address))
    return "\n".join(parts)


def of_page(data: dict, docname: str) -> dict:
    """The part of the ledger that is of one page."""
    blocks = [row for row in data["blocks"] if row["page"] == docname]
    return {"counts": Counter(map(_column, blocks)), "blocks": blocks}


def _column(row: dict) -> str:
    where = "" if row["where"] == "here" else row["where"]
    return counted(Origin(row["origin"] or "", where))


def _page(row: dict) -> str:
    return row["page"]


def _counts(title: str, counts: dict) -> str:
    cells = "".join(f"<td>{counts.get(kind, 0) or '–'}</td>" for kind in COLUMNS)
    return f'<tr><th scope="row">{title}</th>{cells}</tr>'


def _blocks(name: str, rows: list[dict], title: str, address: str) -> str:
    columns = ("line", "language", "origin", "where", "targets", "source", "reason")
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    lines = []
    for number, row in enumerate(rows):
        kind = row["origin"] or "unproven"
        place = f'<a href="{address}#block-{number}">{row["line"]}</a>'
        targets = ", ".join(row["targets"])
        words = (kind.replace("_", " "), row["where"], targets, row["source"])
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

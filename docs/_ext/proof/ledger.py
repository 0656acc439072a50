"""The ledger: a page and a JSON file with the origin of every block."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from html import escape
from itertools import groupby
from operator import itemgetter

from docutils import nodes

from . import tables
from .origins import ELSEWHERE

COLUMNS = (
    *(f"{kind} {place}" for kind in ELSEWHERE for place in ("here", "elsewhere")),
    *("ran on a GPU", "stale", "not run"),
)


def anchor(docname: str) -> str:
    """Where the blocks of a page are on the ledger page."""
    return f"blocks-{nodes.make_id(docname)}"


def collect(env) -> dict:
    """The ledger as data: counts by origin, and one row for each block."""
    every = tables.claims(env).items()
    blocks = [_block(name, claim) for name, claims in every for claim in claims]
    return {"counts": counted(blocks), "blocks": blocks}


def _block(docname: str, claim: dict) -> dict:
    origin = claim["origin"]
    return {
        "page": docname,
        "line": claim["line"],
        "language": claim["language"],
        "origin": origin.kind or None,
        "where": origin.where or ("here" if origin.kind in ELSEWHERE else ""),
        "targets": list(origin.targets),
        "source": origin.source,
        "reason": origin.reason,
    }


def counted(blocks: Iterable[dict]) -> dict[str, int]:
    """How many of these rows each column counts."""
    found = Counter(_column(row) for row in blocks if row["origin"])
    return {name: found[name] for name in COLUMNS}


def _column(row: dict) -> str:
    kind = row["origin"].replace("_", " ")
    if kind in ELSEWHERE:
        return f"{kind} {'here' if row['where'] == 'here' else 'elsewhere'}"
    return "ran on a GPU" if kind == "recorded" else kind


def summary(rows: list[dict]) -> list[str]:
    """How many blocks have which origin; for each reason, how many were not run."""
    counts = (f"{count} {column}" for column, count in counted(rows).items() if count)
    skipped = [row["reason"] for row in rows if row["origin"] == "not_run"]
    reasons = Counter(skipped).most_common()
    return [", ".join(counts), *(f"not run: {n}, {reason}" for reason, n in reasons)]


def html(app, here: str) -> str:
    """Counts in total and for each page, then every block."""
    data = collect(app.env)
    titles = {name: title.astext() for name, title in app.env.titles.items()}
    pages = [(name, list(g)) for name, g in groupby(data["blocks"], itemgetter("page"))]
    body = [_counts("all pages", data["counts"])]
    for name, found in pages:
        to_list = f'<a href="#{anchor(name)}">{escape(titles[name])}</a>'
        body.append(_counts(to_list, counted(found)))
    parts = [
        f"<p>The same table for programs: {tables.file_link(here, 'ledger.json')}.</p>",
        tables.table(["page", *COLUMNS], "".join(body), "proof-counts"),
    ]
    for name, found in pages:
        link = partial(tables.link, app, here, name)
        parts.append(_blocks(link, name, found, titles[name]))
    return "\n".join(parts)


def _counts(title: str, counts: dict) -> str:
    return tables.row((counts[kind] or "–" for kind in COLUMNS), title)


def _blocks(link: Callable, name: str, rows: list[dict], title: str) -> str:
    columns = ("line", "language", "origin", "where", "targets", "source", "reason")
    lines = []
    for number, row in enumerate(rows):
        kind = row["origin"] or "unproven"
        place = link(str(row["line"]), f"block-{number}")
        targets = ", ".join(row["targets"])
        words = (kind.replace("_", " "), row["where"], targets, row["source"])
        cells = [place, *map(escape, (row["language"], *words, row["reason"]))]
        lines.append(tables.row(cells, attributes=f' class="proof-{kind}"'))
    return (
        '<details class="proof-blocks">'
        f"<summary>{escape(title)}: {len(rows)} blocks</summary>"
        # Inside, so that a link to it opens the list.
        f'<p id="{anchor(name)}">{link("Open the page")}</p>'
        f"{tables.table(columns, ''.join(lines))}</details>"
    )

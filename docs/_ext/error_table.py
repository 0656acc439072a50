"""``error-table``: the errors that pages of the book meet, each with cause and cure.

It has every block that fails on purpose, says why, and did fail in this build. Messages
that no block can make are in ``reference/errors.toml``: some are in a recording, and
those that were only reported stand apart. The filter above the table is
``_static/error_table.js``.
"""

import re
from collections import Counter
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

from sphinx.errors import SphinxError

from proof import tables
from proof.evidence import store
from proof.files import read_toml

REPORTED = "Reported in public threads, and not reproduced here"
LONG = 200  # characters
FORM = """\
<form class="operator-filter error-filter" hidden onsubmit="return false">
<label>The message <input type="search" name="text" size="40"></label>
<output></output>
</form>
"""


class Row(NamedTuple):
    """A message and its cause, the page and block that show it, or who reported it."""

    message: str
    cause: str
    page: str
    block: int | None = None
    threads: tuple[str, ...] = ()


def errors(env, rows: list[dict]) -> Iterator[Row]:
    """What failed on purpose in this build, and what the rows of the file add."""
    for name, claims in tables.claims(env).items():
        yield from _made(name, claims)
    for row in rows:
        yield _row(env, row)


def _made(docname: str, claims: list[dict]) -> Iterator[Row]:
    for number, claim in enumerate(claims):
        if claim["how"] != "run" or claim.get("output"):
            continue
        block, result = claim["block"], claim["result"]
        failed = block.cause and result.status == "failed"
        # A stale result may have no match.
        if failed and (match := re.search(block.fails, result.text)):
            yield Row(diagnostic(match), block.cause, docname, number)


def _row(env, row: dict) -> Row:
    """A row of ``errors.toml``.

    Raises:
        SphinxError: If a key is unknown or missing, there is no such page, or the
            message is not in the recording.
    """
    try:
        return _checked(env, **row)
    except TypeError as error:
        raise SphinxError(f"errors.toml: {row.get('message')!r}: {error}") from None


def _checked(env, message, cause, page, recording="", threads=()) -> Row:
    if page not in env.all_docs:
        raise SphinxError(f"errors.toml: there is no page {page}")
    if threads:
        return Row(message, cause, page, threads=tuple(threads))
    record = store().kept(f"gpu:{recording}")
    if not record or message not in record.outputs[0].text:
        raise SphinxError(f"errors.toml: recording {recording!r} lacks {message!r}")
    claims = env.metadata[page]["claims"]
    shown = (n for n, c in enumerate(claims) if c.get("what") == f"gpu:{recording}")
    block = next(shown, None)
    return Row(message, cause, page, block)


def diagnostic(match: re.Match) -> str:
    """The line of the output that matched, cut where it gets long."""
    start = match.string.rfind("\n", 0, match.start()) + 1
    line = match.string[start:].partition("\n")[0]
    if match.end() - start > LONG:  # what the block is about stands further behind
        line = f"{line.split()[0]} … {line[match.start() - start :]}"
    line = re.sub(r"\b(?!_Z)(\w{20})\w{40,}", r"\1…", line.strip())
    line = re.sub(r'(function\("[^"(<]{,40}+)[^"]+', r"\1…", line)
    return line if len(line) <= LONG else f"{line[:LONG]} …"


def _html(app, here: str) -> str:
    known = read_toml(Path(app.srcdir, "reference", "errors.toml"))
    symptoms = {name: "|".join(words) for name, words in known["symptoms"].items()}
    groups = {symptom: [] for symptom in (*symptoms, REPORTED)}
    used = Counter()
    for row in errors(app.env, known["row"]):
        used[name := _name(row.message)] += 1
        name += f"-{used[name]}" * (used[name] > 1)
        mark = f'<a class="headerlink" href="#{name}" title="Link to this row">#</a>'
        message = f"<code>{escape(row.message)}</code>{mark}"
        cells = (message, _inline(row.cause), _seen_on(app, here, row))
        said = row.message.lower()
        fits = (name for name, words in symptoms.items() if re.search(words, said))
        group = REPORTED if row.threads else next(fits)
        groups[group].append(tables.row(cells, attributes=f' id="{name}"'))
    body = "</tbody><tbody>".join(
        f'<tr><th colspan="3" scope="rowgroup">{symptom}</th></tr>{"".join(rows)}'
        for symptom, rows in groups.items()
        if rows
    )
    head = ("The error says", "Cause and cure", "Seen on")
    return FORM + tables.table(head, body, "error-table")


def _seen_on(app, here: str, row: Row) -> str:
    """Links to the page, at the block if there is one, and to the threads."""
    place = "" if row.block is None else f"block-{row.block}"
    links = [tables.link(app, here, row.page, app.env.titles[row.page].astext(), place)]
    for thread in row.threads:
        address = f"https://github.com/{thread.replace('#', '/issues/')}"
        links.append(f'<a href="{address}">{thread}</a>')
    return ", ".join(links)


def _name(text: str) -> str:
    """An anchor of the message's first words, without what changes between runs."""
    words = re.findall(r"[A-Za-z_]{2,}", re.sub(r"\S*/\S*", "", text))
    return "-".join(["error", *words[:8]]).lower()


def _inline(text: str) -> str:
    """Prose whose `code` is marked as in Markdown."""
    return re.sub(r"`+([^`]+)`+", r"<code>\1</code>", escape(text))


def setup(app):
    tables.add(app, "error-table", _html)

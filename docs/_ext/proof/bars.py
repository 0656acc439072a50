"""The tables that a recording printed, with a bar behind each time or rate."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import groupby, takewhile
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from .evidence import store
from .tables import row, table

_CELL = re.compile(r"\S+(?: \S+)*")


@dataclass
class Printed:
    """A table of a print-out: its title, the names of its columns, and its rows."""

    title: str
    head: list[str]
    rows: list[list[str]]


def printed(text: str, columns: list[str]) -> Iterator[Printed]:
    """The tables of a text that have all of these columns.

    Columns are two spaces apart. A cell stands below its column's name, at least in
    part; what stands below no name is in a first column without one.
    """
    lines = text.splitlines()
    for number, line in enumerate(lines):
        places = [(cell[0], *cell.span()) for cell in _cells(line)]
        if not {*columns} <= {name for name, *_ in places}:
            continue
        body = takewhile(lambda below: len(_cells(below)) > 1, lines[number + 1 :])
        rows = [_row(below, places) for below in body]
        head = ["", *(name for name, *_ in places)]
        title = lines[number - 1] if number else ""
        if not title:  # then the table's name is the first word of its head
            title, _, head[1] = head[1].partition(" ")
        used = [n for n in range(len(head)) if any(found[n] for found in rows)]
        kept = [[found[n] for n in used] for found in rows]
        yield Printed(title, [head[n] for n in used], kept)


def _cells(line: str) -> list[re.Match]:
    return [*_CELL.finditer(line)]


def _row(line: str, places: list[tuple[str, int, int]]) -> list[str]:
    found = [""] * (len(places) + 1)
    for cell in _cells(line):
        ends = (
            number
            for number, (_, start, end) in enumerate(places, 1)
            if cell.start() < end and start < cell.end()
        )
        found[next(ends, 0)] = cell[0]
    return found


def html(shown: Printed, columns: list[str], within: str, device: str) -> str:
    """The table; a bar is as long as its share of the largest number `within`.

    That is a column, for the neighbouring rows that are alike in it; "row"; or nothing,
    for the whole table.
    """
    bars = {shown.head.index(name) for name in columns}

    def key(numbered: tuple[int, list[str]]) -> int | str:
        number, cells = numbered
        if within == "row":
            return number
        return cells[shown.head.index(within)] if within else ""

    rows = ""
    for _, group in groupby(enumerate(shown.rows), key):
        found = [cells for _, cells in group]
        most = max(_number(cells[n]) for cells in found for n in bars)
        for cells in found:
            rows += row(_cell(t, n in bars, most) for n, t in enumerate(cells))
    caption = f"<caption>{escape(shown.title)} ({escape(device)})</caption>"
    return table(map(escape, shown.head), rows, "bars", caption)


def _number(text: str) -> float:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else 0.0


def _cell(text: str, is_bar: bool, most: float) -> str:
    if not is_bar or not _number(text):
        return escape(text)
    share = 100 * _number(text) / most
    return f'<span class="bar" style="--share: {share:.1f}%">{escape(text)}</span>'


class Bars(SphinxDirective):
    """Show the tables of a recording that have the columns named."""

    required_arguments = 1
    option_spec: ClassVar = {
        "columns": directives.unchanged_required,
        "within": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        if not (record := store().kept(f"gpu:{self.arguments[0]}")):
            return []  # of what nobody has recorded, `recorded` shows the command
        columns = re.split(r",\s*", self.options["columns"])
        device = record.detail["device"]
        found = [*printed(record.outputs[0].text, columns)]
        if not found:
            raise self.error(f"{self.arguments[0]} printed no table with {columns}")
        within = self.options.get("within", "")
        drawn = (html(one, columns, within, device) for one in found)
        return [nodes.raw("", "".join(drawn), format="html")]

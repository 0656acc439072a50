"""``executors``: which tool executes how many blocks, scripts and cells of the book."""

from collections import Counter
from pathlib import Path

from notebooks import is_cell
from proof import page, tables, units

# A tool, what it executes, the command, and the word for what a file has.
TOOLS = {
    "sphinx-gallery": ("gallery scripts", "nox -s docs", "blocks"),
    "nbclient, for myst-nb": ("tutorials", "nox -s docs", "cells"),
    "the runner": ("pages", "nox -s prove", "blocks"),
    "nbval": ("the pages as notebooks", "nox -s notebooks", "cells"),
    "pytest, with nbval": (
        "gallery scripts, tutorials and pages",
        "nox -s tests -- --all",
        "blocks",
    ),
}

KINDS = ("script:", "notebook:", "page:")


def collect(app, env) -> list[list]:
    """For each tool: its name, how many files it executes, and how many blocks."""
    script, notebook, run = (_claims(env, key) for key in KINDS)
    parts = script, notebook, run, _cells(env, run)
    counts = [[len(part), sum(part.values())] for part in parts]
    every = [sum(numbers) for numbers in zip(*counts[:3], strict=True)]
    return [[t, *n] for t, n in zip(TOOLS, [*counts, every], strict=True)]


def _claims(env, kind: str) -> dict[str, int]:
    """How many blocks of each page were executed, by the kind of their record."""
    found = Counter()
    for docname, claims in env.proof["claims"].items():
        for claim, origin in zip(claims, env.proof["origins"][docname], strict=True):
            is_shown_only = claim.get("output") or origin.kind == "not_run"
            if not is_shown_only and _kind(claim).startswith(kind):
                found[docname] += 1
    return found


def _kind(claim: dict) -> str:
    return "page:" if claim["how"] == "run" else claim.get("what", "")


def _cells(env, pages: dict[str, int]) -> dict[str, int]:
    """How many cells the notebook of a page has: its blocks, and one that prepares."""
    found = {}
    for docname in pages:
        path = Path(env.doc2path(docname))
        results = [shown.result for shown in units.shown(path)]
        pairs = zip(page.parse(path), results, strict=True)
        found[docname] = 1 + sum(is_cell(b, r) for b, r in pairs if r)
    return found


def html(app, here: str, data: list[list]) -> str:
    """A table with a row for each tool."""
    head = ("Tool", "executes", "with", "files", "blocks or cells")
    lines = []
    for tool, files, blocks in data:
        what, command, word = TOOLS[tool]
        cells = (what, f"<code>{command}</code>", f"{files:,}", f"{blocks:,} {word}")
        row = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{tool}</th>{row}</tr>')
    head = "".join(f'<th scope="col">{name}</th>' for name in head)
    return (
        '<div class="pst-scrollable-table-container"><table class="table">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def setup(app):
    tables.add(app, "executors", collect, html)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

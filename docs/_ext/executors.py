"""``executors``: which tool executes how many blocks, scripts and cells of the book."""

from collections import Counter

from notebooks import is_cell, ran
from proof import tables

HEAD = ("Tool", "executes", "with", "files", "blocks or cells")


def html(app, here: str) -> str:
    """A row for each tool: what it executes, the command, how many files and blocks."""
    script, notebook, run = (
        _claims(app.env, kind) for kind in ("script:", "notebook:", "page:")
    )
    # The notebook of a page has its blocks, and a cell that prepares.
    cells = {
        name: 1 + sum(is_cell(*pair) for pair in ran(app.env.metadata[name]["claims"]))
        for name in run
    }
    tools = {
        "sphinx-gallery": ("gallery scripts", "docs", "blocks", script),
        "nbclient, for myst-nb": ("tutorials", "docs", "cells", notebook),
        "the runner": ("pages", "prove", "blocks", run),
        "nbval": ("the pages as notebooks", "notebooks", "cells", cells),
        "pytest, with nbval": (
            "gallery scripts, tutorials and pages",
            "tests -- --all",
            "blocks",
            script | notebook | run,
        ),
    }
    rows = ""
    for tool, (what, command, word, of) in tools.items():
        counts = f"{len(of):,}", f"{sum(of.values()):,} {word}"
        rows += tables.row((what, f"<code>nox -s {command}</code>", *counts), tool)
    return tables.table(HEAD, rows)


def _claims(env, kind: str) -> Counter:
    """How many blocks of each page were executed, by the kind of their record."""
    found = Counter()
    for docname, claims in tables.claims(env).items():
        for claim in claims:
            is_shown_only = claim.get("output") or claim["origin"].kind == "not_run"
            if not is_shown_only and claim.get("what", "").startswith(kind):
                found[docname] += 1
    return found


def setup(app):
    tables.add(app, "executors", html)

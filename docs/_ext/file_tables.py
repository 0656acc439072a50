"""Tables and listings of files: those that a page is about, and the exercises.

``step-files`` has a link to download each file that it names; ``exercise-table`` and
``exercise-solutions`` are made of the exercises' own files.
"""

import ast
import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from sphinx.util.docutils import SphinxDirective

from proof.files import ROOT
from proof.tables import add_markdown

FOLDER = ROOT / "examples_src/sources/exercises"
sys.path.append(str(FOLDER))

import exercises  # noqa: E402  found through the line above


def step_files(directive: SphinxDirective) -> Iterator[str]:
    """A table of whole files: what each holds, its length, a link to download it."""
    yield from ("{.step-files}", "| File | What it holds | Lines |", "|---|---|---|")
    for name in directive.arguments:
        path = ROOT / name
        if not path.is_file():
            raise directive.error(f"step-files: there is no file {name}")
        directive.env.note_dependency(str(path))
        text = path.read_text(encoding="utf-8")
        link = f"{{download}}`{name} </../{name}>`"
        yield f"| {link} | {summary(path, text)} | {len(text.splitlines())} |"


def summary(path: Path, text: str) -> str:
    """The first sentence of a file's own head, "" for a file that has none."""
    if path.suffix == ".py":
        head = ast.get_docstring(ast.parse(text)) or ""
    else:
        mark = "#" if path.suffix == ".toml" else "//"
        comment = re.match(rf"(?:{mark} ?.*\n)*", text)[0]
        head = re.sub(rf"(?m)^{mark} ?", "", comment)
    sentence = re.match(r".*?\.(?=\s+[A-Z]|\s*$)", head.replace("\n", " ").strip())
    return sentence[0].replace("``", "") if sentence else ""


def _chapters(directive: SphinxDirective) -> Iterator[tuple[str, dict]]:
    """The exercises of each chapter, by name."""
    for path in (FOLDER / "exercises.toml", *(FOLDER / "gaps").glob("*.py")):
        directive.env.note_dependency(str(path))
    every = exercises.exercises().items()
    for chapter, group in groupby(every, lambda item: item[1]["chapter"]):
        yield chapter, dict(group)


def exercise_table(directive: SphinxDirective) -> Iterator[str]:
    """A table for each chapter: name, task, page that explains it, tools."""
    for chapter, group in _chapters(directive):
        yield from (f"**{chapter.capitalize()}**", "")
        yield "| Exercise | What you do | Explained on | Needs |"
        yield "|---" * 4 + "|"
        for name, entry in group.items():
            needs = ", ".join(["torch", *entry.get("needs", [])])
            page = f"{{doc}}`/{entry['page']}`"
            yield f"| `{name}` | {exercises.title(name)} | {page} | {needs} |"
        yield ""


def exercise_solutions(directive: SphinxDirective) -> Iterator[str]:
    """The lines that fill each gap, behind a fold of its own."""
    for _, group in _chapters(directive):
        for name in group:
            path = (FOLDER / "solutions" / f"{name}.py").relative_to(ROOT)
            yield from (f":::{{dropdown}} `{name}`", "")
            yield f"```{{literalinclude}} /../{path}"
            yield from (":language: python", "```", ":::", "")


def setup(app):
    add_markdown(app, "step-files", step_files, arguments=1)
    add_markdown(app, "exercise-table", exercise_table)
    add_markdown(app, "exercise-solutions", exercise_solutions)

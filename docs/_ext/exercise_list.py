"""``exercise-table`` and ``exercise-solutions``: the exercises, of their own files."""

import sys
from collections.abc import Iterator
from itertools import groupby

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import downloads
from proof.files import ROOT

FOLDER = ROOT / "examples_src/sources/exercises"
sys.path.append(str(FOLDER))

import exercises  # noqa: E402  found through the line above

ZIP = "exercises.zip"


class Exercises(SphinxDirective):
    """Markdown that is made of the exercises, chapter by chapter."""

    def run(self) -> list[nodes.Node]:
        for path in (FOLDER / "exercises.toml", *(FOLDER / "gaps").glob("*.py")):
            self.env.note_dependency(str(path))
        every, lines = exercises.exercises().items(), []
        for chapter, group in groupby(every, lambda item: item[1]["chapter"]):
            lines += WRITERS[self.name](chapter, dict(group))
        return self.parse_text_to_nodes("\n".join(lines))


def table(chapter: str, group: dict[str, dict]) -> Iterator[str]:
    """A table for each chapter: name, task, page that explains it, tools."""
    yield from (f"**{chapter.capitalize()}**", "")
    yield "| Exercise | What you do | Explained on | Needs |"
    yield "|---" * 4 + "|"
    for name, entry in group.items():
        needs = ", ".join(["torch", *entry.get("needs", [])])
        page = f"{{doc}}`/{entry['page']}`"
        yield f"| `{name}` | {exercises.title(name)} | {page} | {needs} |"
    yield ""


def solutions(chapter: str, group: dict[str, dict]) -> Iterator[str]:
    """The lines that fill each gap, behind a fold of its own."""
    for name in group:
        yield from (f":::{{dropdown}} `{name}`", "")
        path = (FOLDER / "solutions" / f"{name}.py").relative_to(ROOT)
        yield f"```{{literalinclude}} /../{path}"
        yield from (":language: python", "```", ":::", "")


WRITERS = {"exercise-table": table, "exercise-solutions": solutions}


def zipped() -> bytes:
    """What a reader downloads: all but the solutions; the same bytes in each build."""
    files = [FOLDER / name for name in ("exercises.py", "exercises.toml", "judges.py")]
    files += sorted((FOLDER / "gaps").glob("*.py"))
    texts = {str(path.relative_to(FOLDER)): path.read_text() for path in files}
    return downloads.archive("exercises", texts)


def setup(app):
    for name in WRITERS:
        app.add_directive(name, Exercises)
    downloads.offer(app, ZIP, zipped)
    return {"version": "1", "parallel_read_safe": True}

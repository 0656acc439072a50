"""``exercise-table`` and ``exercise-solutions``: the exercises, of their own files."""

import sys
from collections.abc import Iterator
from itertools import groupby

from docutils import nodes
from docutils.statemachine import StringList
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
        shown = nodes.container()
        every = exercises.exercises().items()
        for chapter, group in groupby(every, lambda item: item[1]["chapter"]):
            lines = [*self.lines(chapter, dict(group))]
            self.state.nested_parse(StringList(lines), self.content_offset, shown)
        return shown.children

    def lines(self, chapter: str, group: dict[str, dict]) -> Iterator[str]:
        raise NotImplementedError


class ExerciseTable(Exercises):
    """A table for each chapter: name, task, page that explains it, tools."""

    def lines(self, chapter, group):
        yield from (f"**{chapter.capitalize()}**", "")
        yield "| Exercise | What you do | Explained on | Needs |"
        yield "|---" * 4 + "|"
        for name, entry in group.items():
            needs = ", ".join(["torch", *entry.get("needs", [])])
            page = f"{{doc}}`/{entry['page']}`"
            yield f"| `{name}` | {exercises.title(name)} | {page} | {needs} |"
        yield ""


class ExerciseSolutions(Exercises):
    """The lines that fill each gap, behind a fold of its own."""

    def lines(self, chapter, group):
        for name in group:
            yield from (f":::{{dropdown}} `{name}`", "")
            path = (FOLDER / "solutions" / f"{name}.py").relative_to(ROOT)
            yield f"```{{literalinclude}} /../{path}"
            yield from (":language: python", "```", ":::", "")


def zipped() -> bytes:
    """What a reader downloads: all but the solutions; the same bytes in each build."""
    files = [FOLDER / name for name in ("exercises.py", "exercises.toml", "judges.py")]
    files += sorted((FOLDER / "gaps").glob("*.py"))
    texts = {str(path.relative_to(FOLDER)): path.read_text() for path in files}
    return downloads.archive("exercises", texts)


def setup(app):
    app.add_directive("exercise-table", ExerciseTable)
    app.add_directive("exercise-solutions", ExerciseSolutions)
    downloads.offer(app, ZIP, zipped)
    return {"version": "1", "parallel_read_safe": True}

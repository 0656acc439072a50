"""``project-step``: the project at a page of the guide, and its zips."""

from functools import partial
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

import downloads
from proof import page, projects

LEXERS = {".py": "python", ".toml": "toml", ".yml": "yaml", ".md": "markdown"}
LEXERS |= {".h": "cpp", ".cpp": "cpp", ".cu": "cuda"}


class ProjectStep(SphinxDirective):
    """The tree of files at this page's step, the new and changed ones in folds.

    The fold of the file that ``open`` names is open.
    """

    option_spec: ClassVar = {"open": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        path = Path(self.env.doc2path(self.env.docname))
        step = page.project(path)
        try:
            now = projects.state(step)
            before = projects.state(step - 1) if step > 1 else {}
        except ValueError as error:
            raise self.error(f"project-step: {error}") from error
        self.env.note_dependency(str(projects.STEPS))
        marks = {name: _mark(file, before.get(name)) for name, file in now.items()}
        opened = self.options.get("open")
        if opened and not marks.get(opened):
            raise self.error(f"project-step: no new or changed file {opened}")
        tree = nodes.container("", _tree(marks), classes=["project-tree"])
        lines = []
        for name, mark in marks.items():
            if mark:
                lines += _fold(name, now[name], before.get(name), mark, name == opened)
        return [tree, *self.parse_text_to_nodes("\n".join(lines))]


def _mark(new: projects.File, old: projects.File | None) -> str:
    if old is None:
        return "new"
    return "" if new.text == old.text else "changed"


def _tree(marks: dict[str, str]) -> nodes.bullet_list:
    """A list of the files, folders first, the new and changed ones marked."""
    entries = nodes.bullet_list()
    folders: dict[str, dict[str, str]] = {}
    for name, mark in marks.items():
        if "/" in name:
            folder, _, rest = name.partition("/")
            folders.setdefault(folder, {})[rest] = mark
    for folder, inside in sorted(folders.items()):
        line = nodes.paragraph("", "", nodes.literal("", f"{folder}/"))
        entries += nodes.list_item("", line, _tree(inside))
    for name in sorted(name for name in marks if "/" not in name):
        line = nodes.paragraph("", "", nodes.literal("", name))
        entries += nodes.list_item("", line, classes=["here"] * bool(marks[name]))
        if marks[name]:
            line += nodes.Text(" ")
            line += nodes.inline("", marks[name], classes=["here-note", marks[name]])
    return entries


def _fold(
    name: str,
    file: projects.File,
    old: projects.File | None,
    mark: str,
    is_open: bool = False,
):
    """A dropdown with the new lines, if there are others, and the file, as Markdown."""
    count = len(file.numbers)
    # Step 1 has files of its own, of which the next ones keep no line.
    known = set(old.numbers) if old and old.original == file.original else set()
    lit = {n for n, number in enumerate(file.numbers, 1) if number not in known}
    what = f"{mark}, {count} lines" + (f", {len(lit)} of them new" if known else "")
    yield f"::::{{dropdown}} `{name}`: {what}"
    yield from [":open:"] * is_open
    yield ""
    if known:
        yield from ("The marked lines are new.", "")
        for lines in _with_context(lit, count):
            yield from (f"Lines {lines[0]} to {lines[-1]}:", "")
            yield from _listing(name, file, lines, lit)
        yield from (":::{dropdown} The whole file", "")
    yield from _listing(name, file, range(1, count + 1), lit if known else set())
    yield from [":::"] * bool(known)
    yield from ("::::", "")


def _with_context(lit: set[int], count: int) -> list[range]:
    """The runs of these lines, each with the two lines after it.

    A line before it may be the end of a docstring, which no lexer knows for one.
    """
    near = {n + d for n in lit for d in range(3)} & {*range(1, count + 1)}
    firsts, lasts = near - {n + 1 for n in near}, near - {n - 1 for n in near}
    pairs = zip(sorted(firsts), sorted(lasts), strict=True)
    return [range(first, last + 1) for first, last in pairs]


def _listing(name: str, file: projects.File, lines: range, lit: set[int]):
    """These lines of a file, as Markdown."""
    yield f"```{{literalinclude}} /../{file.original}"
    yield f":lines: {lines[0]}-{lines[-1]}"
    yield ":with-markers:"
    if language := LEXERS.get(Path(name).suffix):
        yield f":language: {language}"
    if name.startswith("."):
        yield ":not-run: git and GitHub read it"
    if shown := [str(n) for n, line in enumerate(lines, 1) if line in lit]:
        yield f":emphasize-lines: {','.join(shown)}"
    yield from ("```", "")


def zipped(step: int) -> bytes:
    """The files of a step, or the exercises."""
    texts = {name: file.text for name, file in projects.state(step).items()}
    return downloads.archive(downloads.zip_name(step).removesuffix(".zip"), texts)


def setup(app):
    app.setup_extension("downloads")
    app.add_directive("project-step", ProjectStep)
    for step in range(1, projects.EXERCISES + 1):
        downloads.offer(app, downloads.zip_name(step), partial(zipped, step))

"""``code-step``: part of a file, with the lines lit that this page adds to it."""

from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives

from proof.directives import ProvenInclude, without_markers


class CodeStep(ProvenInclude):
    """``literalinclude`` with the option ``:new: NAME``.

    NAME is a region of the file, the lines between the comments ``[NAME]`` and
    ``[/NAME]``: no line numbers to keep in step with the file.
    """

    option_spec = ProvenInclude.option_spec | {"new": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        if name := self.options.pop("new", None):
            _, path = self.env.relfn2path(self.arguments[0])
            try:
                new = region(Path(path), name)
            except ValueError as error:
                raise self.error(f"code-step: {error}") from error
            lines = Path(path).read_text(encoding="utf-8").splitlines()
            numbers = self.selected(path)
            kept = without_markers([lines[number - 1] for number in numbers])
            shown = enumerate((numbers[index] for index in kept), 1)
            lit = [str(place) for place, number in shown if number in new]
            if not lit:
                raise self.error(f"code-step: no line of [{name}] is shown")
            self.options["emphasize-lines"] = ",".join(lit)
        return super().run()


def region(path: Path, name: str) -> range:
    """Line numbers between the markers of a region, counted from 1.

    Raises:
        ValueError: when the file lacks one of the markers.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    marks = [
        number
        for mark in (f"[{name}]", f"[/{name}]")
        for number, line in enumerate(lines, 1)
        if mark in line
    ]
    if len(marks) != 2:
        raise ValueError(f"{path.name} has no region [{name}]")
    return range(marks[0] + 1, marks[1])


def setup(app):
    app.setup_extension("proof")
    app.add_directive("code-step", CodeStep)
    return {"version": "1", "parallel_read_safe": True}

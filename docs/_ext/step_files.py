"""``step-files``: the files that a page is about, each to be downloaded."""

import ast
import re
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from proof.files import ROOT


class StepFiles(SphinxDirective):
    """A table of whole files: what each holds, its length, a link to download it."""

    required_arguments = 1
    optional_arguments = 100

    def run(self) -> list[nodes.Node]:
        lines = ["| File | What it holds | Lines |", "|---|---|---|"]
        shown = self.parse_text_to_nodes(
            "\n".join([*lines, *map(self._row, self.arguments)])
        )
        shown[0]["classes"].append("step-files")
        return shown

    def _row(self, name: str) -> str:
        """A row with a link to download the file."""
        path = ROOT / name
        if not path.is_file():
            raise self.error(f"step-files: there is no file {name}")
        self.env.note_dependency(str(path))
        text = path.read_text(encoding="utf-8")
        link = f"{{download}}`{name} </../{name}>`"
        return f"| {link} | {summary(path, text)} | {len(text.splitlines())} |"


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


def setup(app):
    app.add_directive("step-files", StepFiles)
    return {"version": "1", "parallel_read_safe": True}

"""``step-files``: the files that a page is about, each to be downloaded."""

import ast
import re
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

from code_objects import table
from proof.files import ROOT


class StepFiles(SphinxDirective):
    """A table of whole files: what each holds, its length, a link to download it."""

    required_arguments = 1
    optional_arguments = 100

    def run(self) -> list[nodes.Node]:
        rows = [self._cells(name) for name in self.arguments]
        files = table(["File", "What it holds", "Lines"], rows)
        files["classes"].append("step-files")
        _, *shown = files.findall(nodes.row)
        for name, row in zip(self.arguments, shown, strict=True):
            link = addnodes.download_reference("", "", reftarget=f"/../{name}")
            link += nodes.literal("", name, classes=["xref", "download"])
            row[0][0] += link
        return [nodes.container("", files, classes=["pst-scrollable-table-container"])]

    def _cells(self, name: str) -> list[str]:
        """The texts of a row; the link takes the first place."""
        path = ROOT / name
        if not path.is_file():
            raise self.error(f"step-files: there is no file {name}")
        self.env.note_dependency(str(path))
        text = path.read_text(encoding="utf-8")
        return ["", summary(path, text), str(len(text.splitlines()))]


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

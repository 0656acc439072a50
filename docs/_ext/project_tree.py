"""``project-tree``: where in the project the reader is."""

from collections.abc import Iterable
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from proof.evidence import ROOT, relative, sha256

TOP = ("csrc", "src/opbook", "tests", "setup.py", "pyproject.toml")
SUFFIXES = {".h", ".cpp", ".cu", ".py", ".toml"}


class ProjectTree(SphinxDirective):
    """The project's files, read from the disk, with the ones of this page marked.

    Folders without a marked file stay closed.
    """

    optional_arguments = 100

    def run(self) -> list[nodes.Node]:
        self.marked = {Path(name).as_posix() for name in self.arguments}
        for name in sorted(self.marked):
            if not (ROOT / name).exists():
                raise self.error(f"project-tree: there is no file {name}")
        folders = self.env.project_tree_folders.setdefault(self.env.docname, {})
        self.folders = folders
        tree = nodes.container(classes=["project-tree"])
        tree += self._list(ROOT / name for name in TOP if (ROOT / name).exists())
        return [tree]

    def _list(self, paths: Iterable[Path], inside: Path = ROOT) -> nodes.bullet_list:
        entries = nodes.bullet_list()
        for path in paths:
            text = path.relative_to(inside).as_posix() + "/" * path.is_dir()
            entry = nodes.list_item("", line := nodes.paragraph())
            line += nodes.literal("", text)
            if path.relative_to(ROOT).as_posix() in self.marked:
                entry["classes"].append("here")
                line += nodes.Text(" ")
                line += nodes.inline("", "you are here", classes=["here-note"])
            if path.is_dir():
                self.folders[str(path)] = sha256(path)
                if self._is_open(path):
                    entry += self._list(_sources(path), path)
            entries += entry
        return entries

    def _is_open(self, folder: Path) -> bool:
        name = folder.relative_to(ROOT).as_posix() + "/"
        return any(marked.startswith(name) for marked in self.marked)


def _sources(folder: Path) -> list[Path]:
    """Folders first; no generated files."""
    found = [
        path
        for path in folder.iterdir()
        if relative(path) and (path.is_dir() or path.suffix in SUFFIXES)
    ]
    return sorted(found, key=lambda path: (path.is_file(), path.name))


def prepare(app) -> None:
    if not hasattr(app.env, "project_tree_folders"):
        app.env.project_tree_folders = {}


def purge(app, env, docname) -> None:
    env.project_tree_folders.pop(docname, None)


def outdated(app, env, added, changed, removed) -> list[str]:
    """Read a page again when a file came or went, not when one was edited."""
    return [
        docname
        for docname, folders in env.project_tree_folders.items()
        if any(sha256(folder) != names for folder, names in folders.items())
    ]


def setup(app):
    app.add_directive("project-tree", ProjectTree)
    app.connect("builder-inited", prepare)
    app.connect("env-purge-doc", purge)
    app.connect("env-get-outdated", outdated)
    return {"version": "1", "env_version": 1, "parallel_read_safe": False}

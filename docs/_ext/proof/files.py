"""The files of the repository: their names in records, and digests of what they are."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from types import ModuleType

from . import digest

ROOT = Path(__file__).resolve().parents[3]
# Where pages run that have a project of their own (see projects.py).
PROJECTS = ROOT / "build" / "projects"
_LOADING = threading.RLock()

# Generated or private: never the source of anything that a page shows.
_NOT_SOURCES = re.compile(
    r"(^|/)(\.|__pycache__|site-packages|[^/]*\.egg-info)|^build(/|$)|\.so$"
    r"|^docs/(examples|tutorials|jupyter_execute)(/|$)"
)
# What is made in a folder that git does not know, and belongs to nobody else.
_MADE = re.compile(
    r"(^|/)(\.git|\.nox|\.venv|__pycache__|\.\w+_cache|[^/]*\.egg-info)(/|$)"
    r"|^((tools|starter/\w+)/)?(build|dist)/|\.(so|o|whl|pyc)$"
    r"|^docs/(examples|tutorials|jupyter_execute)/"
)


class BuildError(ValueError):
    """Something that stops the build of the book: where, and with the remedy."""


def relative(path: str | Path) -> str | None:
    """Name a file of the repository by its path from the root.

    Returns:
        None for anything outside the repository and for generated files. A copy of a
        file in a page's project has the name of its original, while it is the same.
    """
    try:
        name = Path(os.path.abspath(path)).relative_to(ROOT).as_posix()
    except ValueError:
        return None
    if name.startswith("build/projects/"):
        return _original(path)
    return None if _NOT_SOURCES.search(name) else name


def tracked(*, new: bool = False) -> list[str]:
    """The files that git tracks; in a copy without git, all that nothing made.

    Args:
        new: List files too that git neither tracks nor ignores.
    """
    command = ["git", "ls-files", "-z"]
    if new:
        command += ["--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0 and done.stdout:
        names = done.stdout.strip("\0").split("\0")
        return sorted(name for name in names if (ROOT / name).is_file())
    files = sorted(path for path in ROOT.rglob("*") if path.is_file())
    names = (path.relative_to(ROOT).as_posix() for path in files)
    return [name for name in names if not _MADE.search(name)]


def _original(path: str | Path) -> str | None:
    page, *parts = Path(os.path.abspath(path)).relative_to(PROJECTS).parts
    copies = read_json(PROJECTS / f"{page}.json", {})
    name, known = copies.get("/".join(parts), (None, ""))
    return name if name and sha256(path) == known else None


def load(path: Path) -> ModuleType:
    """Load a module by its path: importing its package would import torch."""
    with _LOADING:  # no other thread sees a module that is not executed to its end
        known = sys.modules.get(path.stem)
        if known and known.__file__ == str(path):
            return known
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module


def sha256(path: str | Path, meaning: bool = False) -> str:
    """Digest a file and, by its names, a folder; "" if it is missing.

    Args:
        path: from the root of the repository.
        meaning: whether comments and layout of code are left out.
    """
    path = Path(ROOT, path)
    try:
        if path.is_dir():
            names = sorted(p.name for p in path.iterdir() if _has_source(p))
            return digest.of_bytes("\n".join(names).encode())
        status = path.stat()
        return _digest(str(path), status.st_mtime_ns, status.st_size, meaning)
    except OSError:
        return ""


def _has_source(path: Path) -> bool:
    """Whether a path is a source, or a folder with one: git keeps no other."""
    inside = path.rglob("*") if path.is_dir() else [path]
    return bool(relative(path)) and any(p.is_file() and relative(p) for p in inside)


@cache
def _digest(path: str, mtime: int, size: int, meaning: bool) -> str:
    data = Path(path).read_bytes()
    if meaning:
        return digest.of_meaning(data, Path(path).suffix)
    return digest.of_bytes(data)


def is_unchanged(path: str | Path, known: str) -> bool:
    """Whether a file is what it was when `digests` gave this digest of it."""
    return bool(known) and sha256(path, known.startswith("code:")) == known


def digests(paths: Iterable[str | Path], text: Collection[str] = ()) -> dict[str, str]:
    """Digest the files of the repository among `paths`, for `Record.inputs`.

    Args:
        paths: files and folders.
        text: those that count by their bytes, because they were read as text.
    """
    names = sorted({name for path in paths if (name := relative(path))})
    return {n: known for n in names if (known := sha256(n, meaning=n not in text))}


def pinned(inputs: dict[str, str], printed: str) -> dict[str, str]:
    """The inputs; by its bytes each file of which the output names a line."""
    named = re.findall(r"([\w.-]+\.\w+)(?:\W{1,3}|\W+line )\d", printed)
    return {
        name: sha256(name) if Path(name).name in named else known
        for name, known in inputs.items()
    }


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all, for a build may be interrupted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def write_json(path: Path, data: object) -> None:
    """Write data whole or not at all, a list of numbers on one line."""
    number_list = re.compile(r"\[\n[-+\d.eE,\s]*\]")  # no JSON string has a line break
    text = json.dumps(data, indent=1, ensure_ascii=False)
    text = number_list.sub(lambda found: re.sub(r"\n\s*", " ", found[0]), text)
    write_text(path, f"{text}\n")


def read_toml(path: Path) -> dict:
    """Read a file that somebody wrote by hand."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BuildError(f"{relative(path)}: {error}") from None


def read_json(path: Path, default: object) -> object:
    """Read a file that `write_json` wrote; anything unreadable counts as absent."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return default

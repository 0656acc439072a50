"""What a run compiled: each compiler that it started, its sources, how it ended.

A run notes its compilers in one file: those that Python starts through `watch`, those
of a page's shell commands through compilers.bash. A note is the exit status, the folder
and the words of the command, each ended by UNIT, the whole by RECORD.
"""

import os
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from .digest import NATIVE
from .files import ROOT, relative

UNIT, RECORD = "\x1f", "\x1e"
SHELL_FUNCTIONS = Path(__file__).parent / "trace" / "compilers.bash"

_COMPILER = re.compile(r"(g\+\+|c\+\+|gcc|cc|clang|clang\+\+|nvcc|hipcc)(-\d+)?$")
# What may start a compiler that is named later in its command.
_STARTER = re.compile(r"(ccache|sccache|env|nice|time|timeout|python[\d.]*)$")
# With one of these a compiler ends well and has made no code.
_NO_CODE = {"-E", "-M", "-MM", "-###", "-fsyntax-only", "--preprocess"}
_NO_CODE |= {"-dryrun", "--dryrun", "--generate-dependencies", "--help", "--version"}
# Of a shell: the command cannot be started, or a signal ended it.
_NOT_AN_ANSWER = 126
_TARGET = re.compile(
    r"(?:-arch[= ]|code=|--offload-arch=|--gpu-architecture=)\[?(?:lto_)?"
    r"((?:sm_\d+[af]?|gfx[\da-f]+)(?:,(?:sm_\d+[af]?))*)"
)
_INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
_FOLDER = re.compile(r"(?:^|\s)-I\s*(\S+)")


def watch(file: Path) -> None:
    """Note from now on the compilers that this process starts."""

    class Popen(subprocess.Popen):
        def __init__(self, args, *rest, **options) -> None:
            words = args if isinstance(args, list | tuple) else []
            self._words = [os.fsdecode(word) for word in words]
            self._folder = os.path.abspath(options.get("cwd") or ".")
            super().__init__(args, *rest, **options)

        @property
        def returncode(self) -> int | None:
            return self.__dict__.get("_ended_with")

        @returncode.setter
        def returncode(self, status: int | None) -> None:
            self.__dict__["_ended_with"] = status
            if status is not None and starts_compiler(self._words):
                note = [str(status), self._folder, *self._words]
                with file.open("a", errors="surrogateescape") as log:
                    log.write("".join(word + UNIT for word in note) + RECORD)

    subprocess.Popen = Popen


def starts_compiler(words: list[str]) -> bool:
    """Whether the first word is a compiler, or starts one, as ccache does."""
    first, *rest = map(os.path.basename, words or [""])
    if _STARTER.match(first):
        return any(map(_COMPILER.match, rest))
    return bool(_COMPILER.match(first))


def read(file: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Sort the sources that a run compiled from those that the compiler refused.

    Returns:
        Two dicts from a file of the repository to its targets. Local headers count with
        the sources that include them.
    """
    compiled: dict[str, set[str]] = {}
    refused: dict[str, set[str]] = {}
    for status, folder, words in _notes(file):
        names = native_files(words, folder)
        if not (0 <= status < _NOT_AN_ANSWER) or (not status and _NO_CODE & {*words}):
            continue
        into = refused if status else compiled
        folders = [Path(folder, found) for found in _FOLDER.findall(" ".join(words))]
        for name in names if status else names | included(names, folders):
            into.setdefault(name, set()).update(_targets(words))
    return tuple({n: sorted(t) for n, t in d.items()} for d in (compiled, refused))


def programs(file: Path) -> set[str]:
    """The compilers that the run started, by the names of their programs."""
    named = (os.path.basename(word) for _, _, words in _notes(file) for word in words)
    return set(filter(_COMPILER.match, named))


def _notes(file: Path) -> Iterator[tuple[int, str, list[str]]]:
    text = file.read_text(errors="replace") if file.exists() else ""
    for note in text.split(RECORD)[:-1]:  # the last one is empty, or was cut off
        status, folder, *words = note.split(UNIT)[:-1]
        yield int(status), folder, words


def _targets(words: list[str]) -> set[str]:
    found = {t for names in _TARGET.findall(" ".join(words)) for t in names.split(",")}
    return found or {platform.machine()}


def native_files(words: Iterable[str], folder: str | Path = ROOT) -> set[str]:
    """The C++, CUDA and HIP files of the repository that a command names."""
    paths = [Path(folder, word) for word in words if Path(word).suffix in NATIVE]
    return {name for path in paths if path.is_file() and (name := relative(path))}


def included(names: set[str], folders: Iterable[Path] = ()) -> set[str]:
    """Local headers of C++ sources, found by their ``#include`` lines.

    Args:
        names: the sources.
        folders: where the compiler looks for headers, in quotes or in angle brackets.
    """
    found: set[str] = set()
    todo = [ROOT / name for name in names if Path(name).suffix in NATIVE]
    while todo:
        source = todo.pop()
        if not source.is_file():
            continue
        for mark, header in _INCLUDE.findall(source.read_text(errors="replace")):
            quoted = [source.parent, ROOT / "csrc"] if mark == '"' else []
            paths = [place / header for place in (*quoted, *folders)]
            path = next(filter(Path.is_file, paths), None)
            name = path and relative(path)
            if name and name not in found:
                found.add(name)
                todo.append(path)
    return found

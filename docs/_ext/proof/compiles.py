"""What a run compiled: each compiler that it started, its sources, how it ended.

A run notes its compilers in one file: those that Python starts through `watch`, those
of a page's shell commands through compilers.bash. A note is the exit status, the folder
and the words of the command, each ended by UNIT, the whole by RECORD.
"""

import os
import platform
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from .evidence import ROOT, relative

UNIT, RECORD = "\x1f", "\x1e"
SHELL_FUNCTIONS = Path(__file__).parent / "trace" / "compilers.bash"
NATIVE = {".h", ".hpp", ".cuh", ".c", ".cc", ".cpp", ".cu", ".hip"}

_COMPILER = re.compile(r"(g\+\+|c\+\+|gcc|cc|clang|clang\+\+|nvcc|hipcc)(-\d+)?$")
_TARGET = re.compile(
    r"(?:-arch[= ]|code=|--offload-arch=|--gpu-architecture=)\[?(?:lto_)?"
    r"((?:sm_\d+[af]?|gfx[\da-f]+)(?:,(?:sm_\d+[af]?))*)"
)
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def watch(file: Path) -> None:
    """Note from now on the compilers that this process starts."""

    class Popen(subprocess.Popen):
        @property
        def returncode(self) -> int | None:
            return self.__dict__.get("_ended_with")

        @returncode.setter
        def returncode(self, status: int | None) -> None:
            self.__dict__["_ended_with"] = status
            words = self.args if isinstance(self.args, list | tuple) else []
            # Anywhere: a compiler may be started through ccache or a stop-watch.
            if status is not None and any(_is_compiler(str(word)) for word in words):
                note = [str(status), os.getcwd(), *map(str, words)]
                with file.open("a") as log:
                    log.write("".join(word + UNIT for word in note) + RECORD)

    subprocess.Popen = Popen


def _is_compiler(word: str) -> bool:
    return bool(_COMPILER.match(os.path.basename(word)))


def read(file: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Sort the sources that a run compiled from those that the compiler refused.

    Returns:
        Two dicts from a file of the repository to its targets. Local headers count with
        the sources that include them.
    """
    compiled: dict[str, set[str]] = {}
    refused: dict[str, set[str]] = {}
    for status, folder, words in _notes(file):
        sources = [Path(folder, word) for word in words if Path(word).suffix in NATIVE]
        names = {
            name for path in sources if path.is_file() and (name := relative(path))
        }
        into = refused if status else compiled
        for name in names if status else names | included(names):
            into.setdefault(name, set()).update(_targets(words))
    return tuple({n: sorted(t) for n, t in d.items()} for d in (compiled, refused))


def _notes(file: Path) -> Iterator[tuple[int, str, list[str]]]:
    text = file.read_text(errors="replace") if file.exists() else ""
    for note in text.split(RECORD)[:-1]:
        status, folder, *words = note.split(UNIT)[:-1]
        yield int(status), folder, words


def _targets(words: list[str]) -> set[str]:
    found = {t for names in _TARGET.findall(" ".join(words)) for t in names.split(",")}
    return found or {platform.machine()}


def included(names: set[str]) -> set[str]:
    """Local headers of C++ sources, found by their ``#include`` lines."""
    found: set[str] = set()
    todo = [ROOT / name for name in names if Path(name).suffix in NATIVE]
    while todo:
        source = todo.pop()
        if not source.is_file():
            continue
        for header in _INCLUDE.findall(source.read_text(errors="replace")):
            for path in (source.parent / header, ROOT / "csrc" / header):
                name = relative(path)
                if name and path.is_file() and name not in found:
                    found.add(name)
                    todo.append(path)
    return found

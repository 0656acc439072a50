"""Judge answers to the exercises: the files that are named, or else all solutions.

A fork that has torch loaded judges each answer. What it says of FILE.py is printed, and
kept beside it in FILE.said.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

import exercises

FOLDER = Path(__file__).resolve().parent
GAP = re.compile(r"# \[gap\]\n(.*?)# \[/gap\]\n", re.DOTALL)


def gap(name: str) -> str:
    """An exercise's file as the reader gets it."""
    return (FOLDER / "gaps" / f"{name}.py").read_text()


def solution(name: str) -> str:
    """The lines of a solution, which stand in the gap of the exercise."""
    return (FOLDER / "solutions" / f"{name}.py").read_text()


def filled(name: str, lines: str) -> str:
    """The exercise with these lines in its gap."""
    return GAP.sub(lambda _: lines, gap(name))


def judged(path: Path) -> int:
    """Judge an answer, and return the exit status of the process that has done it."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = os.open(path.with_suffix(".said"), os.O_WRONLY | os.O_CREAT)
    os.dup2(said, 1)
    os.dup2(said, 2)
    status = judges.main(path)
    sys.stdout.flush()
    os._exit(status)


def main(paths: list[Path]) -> int:
    """Judge answers, and return the status of the last one that was not right."""
    worst = 0
    for path in paths:
        status = judged(path)
        worst = status or worst
        print(path.with_suffix(".said").read_text(), end="", flush=True)
    return worst


if __name__ == "__main__":
    # What the judges use is loaded before the forks.
    import judges
    import torch._dynamo
    import torch.testing._internal.optests  # noqa: F401

    if len(sys.argv) > 1:
        sys.exit(main([*map(Path, sys.argv[1:])]))
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{name}.py") for name in exercises.exercises()]
        for path in paths:
            path.write_text(filled(path.stem, solution(path.stem)))
        sys.exit(main(paths))

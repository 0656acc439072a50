"""Measure what the sessions of the book cost, on a copy of the repository.

CPU seconds are those of every process that the build starts, also of the ones that
outlive their parents; memory is the sum of what they hold at one time, with shared
pages counted once. Environments are made first and are not counted. The first row is a
fixed piece of work, by which machines compare.
"""

import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / "build" / "bench" / "docs"
ENVIRONMENTS = ROOT / ".nox" / "bench"
FOLDERS = ("build", ".nox", ".venv", ".git", "__pycache__", "examples", "tutorials")
MADE = (*FOLDERS, "*.so", "*.egg-info")
PR_SET_CHILD_SUBREAPER = 36
CALIBRATION = "import hashlib\nfor _ in range(300): hashlib.sha256(bytes(10**7))"
WALL = {"read": 60, "docs": 300, "tests": 240}  # seconds on two cores, from nothing


@dataclass
class Cost:
    """What one command took, its children included."""

    cpu: float
    wall: float
    peak_gb: float


def main() -> int:
    """Print the table; return 1 when a build is over its budget."""
    if sys.platform != "linux":
        print("bench -- docs reads /proc: run it on Linux", file=sys.stderr)
        return 1
    # Processes whose parent has ended become children of this one, and are counted.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    copy_repository()
    print("setting up environments (not counted)", flush=True)
    nox("read")
    nox("tests", "--collect-only", "--quiet")
    print(f"{'session':28} {'CPU s':>7} {'wall s':>7} {'GB':>5}  budget")
    print(f"{'calibration':28} {calibration():7.1f}", flush=True)
    fits = [from_nothing(session) for session in WALL]
    fits += [
        row("docs, no change", "docs", wall=30),
        row("docs, one prose edit", "docs", edit_prose, wall=30),
        row("docs, comment in portable.h", "docs", edit_comment, wall=60),
        row("docs, one .cpp edit", "docs", lambda: edit_source(".cpp")),
        row("docs, one .cu edit", "docs", lambda: edit_source(".cu")),
    ]
    if "--prove" in sys.argv:
        row("prove, the rest", "prove")
        row("prove, no change", "prove")
    return int(not all(fits))


def from_nothing(session: str) -> bool:
    """Run a session in a copy in which nothing is built."""
    copy_repository()
    return row(f"{session}, from nothing", session, wall=WALL[session])


def row(
    name: str, session: str, edit: Callable[[], None] | None = None, wall: float = 0
) -> bool:
    """Run a session after an edit, print a line; return whether it fits."""
    if edit:
        edit()
    before = evidence()
    cost = nox(session)
    fits = not wall or cost.wall <= wall
    verdict = f"{wall:g} s: {'pass' if fits else 'FAIL'}" if wall else "none"
    print(f"{name:28} {cost.cpu:7.1f} {cost.wall:7.1f} {cost.peak_gb:5.2f}  {verdict}")
    after = evidence()
    again = sorted(what for what in after if after[what] != before.get(what))
    if before and again:
        print("    made again: " + ", ".join(again))
    sys.stdout.flush()
    return fits


def copy_repository() -> None:
    """Copy the sources, so that edits and builds leave the working tree alone."""
    shutil.rmtree(COPY, ignore_errors=True)

    def ignore(folder: str, names: list[str]) -> set[str]:
        made = shutil.ignore_patterns(*MADE)(folder, names)
        # tutorials/ and examples/ are made only inside docs/.
        inside = Path(folder) == ROOT / "docs"
        return made if inside else made - {"tutorials", "examples"}

    shutil.copytree(ROOT, COPY, ignore=ignore)


def edit_prose() -> None:
    """Add a sentence to the first page of the guide."""
    page = next(iter(sorted((COPY / "docs" / "guide").glob("[0-9]*.md"))))
    page.write_text(page.read_text() + "\nOne sentence more.\n")


def edit_comment() -> None:
    """Add a line of comment to the header that every kernel includes."""
    header = COPY / "csrc" / "portable.h"
    header.write_text(f"// One line more.\n{header.read_text()}")


def edit_source(suffix: str) -> None:
    """Add a constant to the first operator's source of that kind."""
    source = next(iter(sorted((COPY / "csrc").glob(f"*/*{suffix}"))))
    more = "[[maybe_unused]] constexpr int kOneMore = 1;\n"
    source.write_text(source.read_text() + more)


def calibration() -> float:
    """CPU seconds of the fixed piece of work."""
    spent = children_cpu()
    subprocess.run([sys.executable, "-c", CALIBRATION], check=True)
    return children_cpu() - spent


def evidence() -> dict[str, int]:
    """When each record of the build was written, by the record's name."""
    records = (COPY / "build" / "proof" / "records").rglob("*.json")
    return {json.loads(p.read_text())["what"]: p.stat().st_mtime_ns for p in records}


def nox(session: str, *options: str) -> Cost:
    """Run a session in the copy, with the benchmark's own environments."""
    python = os.environ.get("OPBOOK_NOX", sys.executable)
    command = [python, "-m", "nox", "--envdir", str(ENVIRONMENTS), "-s", session]
    command += ["--", *options] if options else []
    inherited = ("PYTHONPATH", "VIRTUAL_ENV", "NOX_CURRENT_SESSION")
    clean = {name: os.environ[name] for name in os.environ if name not in inherited}
    started, spent = time.perf_counter(), children_cpu()
    process = subprocess.Popen(
        command, cwd=COPY, env=clean, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    peak = Peak()
    output = process.communicate()[0]
    while any_child_left():
        time.sleep(0.02)
    memory = peak.stop()
    if process.returncode:
        sys.exit(f"{output}\nnox -s {session} failed")
    return Cost(children_cpu() - spent, time.perf_counter() - started, memory / 1e9)


def children_cpu() -> float:
    """CPU seconds of the children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def any_child_left() -> bool:
    """Collect the children that have ended; say whether others still run."""
    try:
        return os.waitpid(-1, os.WNOHANG) is not None
    except ChildProcessError:
        return False


class Peak:
    """The largest sum of memory of this process's descendants, sampled."""

    def __init__(self) -> None:
        self.bytes = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)
        self.thread.start()

    def sample(self) -> None:
        while not self.ended.wait(0.2):
            self.bytes = max(self.bytes, sum(map(proportional_set, descendants())))

    def stop(self) -> int:
        self.ended.set()
        self.thread.join()
        return self.bytes


def descendants() -> list[int]:
    """The processes below this one."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        parents.setdefault(int(fields[1]), []).append(int(status.parent.name))
    found, todo = [], [os.getpid()]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def proportional_set(pid: int) -> int:
    """Memory of a process in bytes; a page shared by n processes counts 1/n."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    sys.exit(main())

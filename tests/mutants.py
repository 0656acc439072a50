"""Break the sources on purpose, one line at a time, and see which test notices.

    python tests/mutants.py [NAME ...]

Every mutant of faults/*.toml is applied to a private copy of the repository, which is
rebuilt as far as needed; then the tests of that part run up to the first failure. A
mutant that no test notices is a bug of the tests: it makes the exit status 1.
"""

import os
import queue
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import torch

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("csrc", "src", "tests", "examples_src", "setup.py", "pyproject.toml")
PARTS += ("benchmarks", "conftest.py", "docs/_ext", "starter", "tools", "README.md")
PARTS += ("LICENSE",)
FAULTS = "tests/faults/*.toml"  # a file for each operator
EMULATOR = "tests/test_gpu_emulator.py"
ON_THE_EMULATOR = (EMULATOR, "_kernel.py")
TIMEOUT = 300  # seconds: a mutant that never ends is noticed too


class Mutant(NamedTuple):
    """One fault: the text ``old`` of ``file``, which occurs once, becomes ``new``.

    Unless ``tests`` says otherwise, tests/test_NAME_kernel.py, if there is one, looks
    for faults of NAME.h and NAME.cu, and the other tests/test_NAME*.py for the rest.
    """

    name: str
    file: str
    old: str
    new: str
    tests: str = ""  # pytest's arguments, where the default is not what should notice
    gpus: int = 0  # how many the test needs

    @property
    def rebuilds_library(self) -> bool:
        """Whether the tests run the fault from the library, not on the emulator."""
        on_emulator = self.arguments()[0].endswith(ON_THE_EMULATOR)
        return self.file.startswith("csrc/") and not on_emulator

    def arguments(self) -> list[str]:
        """The tests that should notice, as arguments of pytest."""
        if self.tests:
            return shlex.split(self.tests)
        path = Path(self.file)
        operator = path.stem.removesuffix("_op")
        if path.suffix in {".h", ".cu"} and self.gpus == 0:
            if path.parent.name == "csrc":  # all of them share it
                return [EMULATOR, *_files("tests/test_*_kernel.py")]
            if found := _files(f"tests/test_{operator}_kernel.py"):
                return found
            # A header that the kernels of its folder share.
            if found := _files(f"tests/test_*{path.parent.name}*_kernel.py"):
                return [EMULATOR, *found]
        pattern = f"tests/test_{operator}*.py"
        found = [name for name in _files(pattern) if not name.endswith(ON_THE_EMULATOR)]
        if not found:
            raise ValueError(f"{self.name}: name its tests, as there is no {pattern}")
        return found


class Verdict(NamedTuple):
    """What became of a mutant."""

    mutant: Mutant
    status: str  # killed, survived, needs a GPU, or broken: not a mutant at all
    by: str  # the test that killed it, or what is broken
    seconds: float = 0.0


class Copy:
    """A private copy of the repository, in which one mutant lives at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._built = False  # the library, from the sources as they are
        ignore = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
        for part in PARTS:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, folder / part, ignore=ignore)
            else:
                shutil.copy(ROOT / part, folder / part)

    def try_out(self, mutant: Mutant) -> Verdict:
        """Apply the mutant, rebuild, run the tests, and take it back."""
        start = time.monotonic()
        path = self.folder / mutant.file
        text = path.read_text()
        if text.count(mutant.old) != 1:
            what = f"{mutant.file} has {text.count(mutant.old)} times {mutant.old!r}"
            return Verdict(mutant, "broken", what)
        try:
            path.write_text(text.replace(mutant.old, mutant.new))
            if error := self._build(mutant.rebuilds_library):
                return Verdict(mutant, "broken", f"does not compile: {error}")
            status, by = self.run_tests(mutant.arguments())
        finally:
            path.write_text(text)
        return Verdict(mutant, status, by, time.monotonic() - start)

    def run_tests(
        self, arguments: Iterable[str], timeout: int = TIMEOUT
    ) -> tuple[str, str]:
        """Run tests up to the first failure; say whether one failed, and which."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        try:
            done = self._run([*command, *arguments], timeout)
        except subprocess.TimeoutExpired:
            return "killed", f"no end after {timeout} s"
        if done.returncode == 0:
            return "survived", ""
        output = done.stdout + done.stderr
        if found := re.search(r"g\+\+ failed:[\s\S]*? error: (.*)", output):
            return "broken", f"does not compile: {found[1]}"
        line = r"^(?:FAILED|ERROR) (?:tools/)?tests/(\S+?::.*?)(?: - .*)?$"
        if failed := re.search(line, output, re.MULTILINE):
            return "killed", failed[1]
        if crashed := re.search(r'tests/(\w+\.py)", line \d+ in (test_\w+)', output):
            return "killed", f"{crashed[1]}::{crashed[2]} (signal {-done.returncode})"
        return "broken", f"pytest ended with {done.returncode}: {output[-300:]}"

    def check_unbroken(self, tests: list[str]) -> str:
        """Run the tests without a fault; return what is wrong."""
        if error := self._build():
            return f"the library does not compile: {error}"
        status, by = self.run_tests(tests, timeout=10 * TIMEOUT)
        return "" if status == "survived" else f"fails without a fault: {by}"

    def _build(self, holds_fault: bool = False) -> str:
        """Compile what changed into the library; return the first error."""
        if self._built and not holds_fault:
            return ""
        done = self._run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"])
        self._built = done.returncode == 0 and not holds_fault
        if done.returncode == 0:
            return ""
        output = done.stdout + done.stderr
        found = re.search(r"error: (.*)", output)
        return found[1] if found else output[-300:]

    def _run(
        self, command: list[str], timeout: int = TIMEOUT
    ) -> subprocess.CompletedProcess:
        paths = [str(self.folder / part) for part in ("src", "tests", "docs/_ext")]
        variables = {"PYTHONPATH": os.pathsep.join(paths)}
        variables["PYTHONDONTWRITEBYTECODE"] = "1"
        return subprocess.run(
            command,
            cwd=self.folder,
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=timeout,
        )


def _files(pattern: str) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))


def load(names: Iterable[str] = ()) -> list[Mutant]:
    """Read the lists; keep the mutants whose name contains one of ``names``."""
    lists = [tomllib.loads((ROOT / file).read_text()) for file in _files(FAULTS)]
    mutants = [Mutant(**entry) for entries in lists for entry in entries["mutant"]]
    return [
        mutant
        for mutant in mutants
        if not names or any(name in mutant.name for name in names)
    ]


def run(mutants: list[Mutant], folder: Path) -> tuple[list[Verdict], str]:
    """Try every mutant that this machine can run, one copy per core.

    Returns:
        The verdicts, and why they are worth nothing: tests that fail without a fault.
    """
    workers = min(4, os.cpu_count() or 1)
    copies: queue.Queue[Copy] = queue.Queue()
    for number in range(workers):
        copies.put(Copy(folder / str(number)))
    gpus = torch.cuda.device_count()

    def try_out(mutant: Mutant) -> Verdict:
        if mutant.gpus > gpus:
            needs = "a GPU" if mutant.gpus == 1 else f"{mutant.gpus} GPUs"
            return Verdict(mutant, f"needs {needs}", "")
        copy = copies.get()
        try:
            verdict = copy.try_out(mutant)
        finally:
            copies.put(copy)
        say(verdict)
        return verdict

    def check_unbroken() -> str:
        copy = copies.get()
        arguments = {each for mutant in mutants for each in mutant.arguments()}
        tests = {each for each in arguments if "tests/" in each}
        try:
            return copy.check_unbroken(sorted(tests))
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(workers) as pool:
        unbroken = pool.submit(check_unbroken)
        return list(pool.map(try_out, mutants)), unbroken.result()


def say(verdict: Verdict) -> None:
    """Print one line as soon as it is known."""
    print(
        f"{verdict.seconds:5.0f} s  {verdict.status:9} {verdict.mutant.name}",
        flush=True,
    )


def table(verdicts: list[Verdict]) -> str:
    """Mutant -> the test that killed it, in the order of the list."""
    rows = [("Mutant", "File", "Killed by")]
    for verdict in verdicts:
        by = verdict.by if verdict.status == "killed" else verdict.status.upper()
        by += f": {verdict.by}" if verdict.status == "broken" else ""
        rows.append((verdict.mutant.name, verdict.mutant.file, by))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(f"{a:{widths[0]}}  {b:{widths[1]}}  {c}" for a, b, c in rows)


def main() -> int:
    """Run the mutants, print the table, and return the exit status."""
    mutants = load(sys.argv[1:])
    if not mutants:
        sys.exit(f"no mutant has {' or '.join(sys.argv[1:])} in its name")
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants_") as folder:
        verdicts, problem = run(mutants, Path(folder))
    print("\n" + table(verdicts))
    counts = {}
    for verdict in verdicts:
        counts[verdict.status] = counts.get(verdict.status, 0) + 1
    summary = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    print(f"\n{len(mutants)} mutants: {summary}; {time.monotonic() - start:.0f} s")
    if problem:
        print(f"This says nothing: {problem}")
    return 1 if problem or counts.keys() & {"survived", "broken"} else 0


if __name__ == "__main__":
    sys.exit(main())

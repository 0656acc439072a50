"""Run code in a process of its own, and note what it read and compiled."""

import contextlib
import json
import multiprocessing
import os
import platform
import runpy
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import traceback
import types
import venv
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from . import build, compiles, digest, machine
from .evidence import Record
from .files import ROOT, digests, pinned, read_json, relative
from .page import Result

# A fork server that has these loaded gives isolation for the price of a fork. `opcheck`
# comes with the compiler and Triton, which many pages use. Nothing of this repository
# is here: a run notes its own imports of that.
PRELOAD = ["torch", "torch.testing._internal.optests"]
TIMEOUT = 600  # seconds
LATE = f"no end after {TIMEOUT} s"
_TRACE = Path(__file__).parent / "trace"


@dataclass
class Run:
    """How a run in a process of its own ended, and the record of it."""

    record: Record
    value: object = None
    error: str = ""

    def failed(self, reason: str) -> Record:
        """The record of a run that went wrong."""
        detail = self.record.detail | {"reason": reason}
        return replace(self.record, kind="failed", detail=detail)


def call(
    what: str,
    function: Callable,
    *args,
    fresh: bool = False,
    where: Path = ROOT,
    file: Path | None = None,
) -> Run:
    """Call a function in a fresh process.

    Args:
        what: the name of the record.
        function: any function that pickle finds by name.
        *args: its arguments, which must pickle.
        fresh: whether to start a new Python instead of a fork that has PRELOAD.
        where: the folder in which to call it: the repository, or a page's project,
            which has an environment of its own.
        file: what the function runs, of which comments and prose are inputs too.
    """
    context = multiprocessing.get_context("spawn" if fresh else "forkserver")
    if not fresh:
        context.set_forkserver_preload(PRELOAD)
    receiver, sender = context.Pipe(duplex=False)
    with traced(where) as (folder, variables):
        arguments = (sender, variables, function, args)
        process = context.Process(target=_child, args=arguments)
        # A child would import the main module again, pytest or this command; and the
        # fork server imports Triton at its start, which then reads its variable.
        hidden = {"__main__": types.ModuleType("__main__")}
        with _starting, _set(sys.modules, hidden), _set(os.environ, triton()):
            process.start()
        sender.close()
        try:
            value, error = _wait(process, receiver)
        finally:
            end(process)
            process.join()
            receiver.close()
        record = _noted(what, folder, where, f"{value}", repr(args))
        record.inputs |= digests([file], text=[relative(file)]) if file else {}
        return Run(record, value, error)


def end(*processes: multiprocessing.Process) -> None:
    """End processes that `call` started, with their children; all that there are."""
    for process in processes or multiprocessing.active_children():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()  # at its start, it is in no group of its own yet


def shell(what: str, command: str, variables: dict[str, str]) -> Run:
    """Run a command, show its output as it comes, and return it as the value."""
    with traced() as (folder, known):
        del known["DIST_EXTRA_CONFIG"]  # it may build several things side by side
        with subprocess.Popen(
            # It ends the command's own children too, which would keep a GPU busy.
            ["timeout", "--kill-after=5", str(TIMEOUT), "bash", "-c", command],
            cwd=ROOT,
            env=known | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as started:
            lines = []
            for line in started.stdout:
                lines.append(line)
                print(f"    {line}", end="", flush=True)  # who waits sees where it is
        status, text = started.returncode, "".join(lines)
        late = f", {LATE}" if status == 124 else ""
        error = f"exit status {status}{late}" if status else ""
        return Run(_noted(what, folder, ROOT, text, command), text, error)


@contextlib.contextmanager
def traced(where: Path = ROOT) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder for notes, and the environment in which processes write them."""
    with tempfile.TemporaryDirectory(prefix="proof-") as folder:
        yield Path(folder), _variables(Path(folder), where)


def _noted(what: str, folder: Path, where: Path, said: str, code: str) -> Record:
    """The record of a run, of what its processes wrote into their folder.

    Args:
        what: the name of the record.
        folder: the folder of `traced`.
        where: the folder in which it ran.
        said: what it returned, in words.
        code: what it ran, as far as no file has it.
    """
    results = [Result(**json.loads(line)) for line in _lines(folder / "results")]
    compiled, refused = compiles.read(folder / "compiles")
    if where != ROOT:
        for name in build.compiled_in(where):
            compiled.setdefault(name, [platform.machine()])
    notes = _lines(folder / "opened")  # which trace/sitecustomize.py wrote
    missed = (note[1:].split("\0") for note in notes if note[0] == "!")
    skipped = {n: why for path, why in missed if (n := relative(path))}
    tools = {note[1:] for note in notes if note[0] == "?"}
    read, text = _inputs(notes)
    native = compiles.included(read) | {*compiled, *refused, *skipped}
    if any(note[0] in "rt" and build.is_library(note[1:]) for note in notes):
        native |= build.sources_of_operators(code + _texts(read))
    inputs = digests((ROOT / name for name in read | native), text)
    printed = "\n".join([*(result.text for result in results), said])
    data = read_json(folder / "data.json", None)
    return Record(
        what,
        "ran",
        machine=machine.versions(tools | compiles.programs(folder / "compiles")),
        inputs=pinned(inputs, printed),
        compiled=compiled,
        refused=refused,
        skipped=skipped,
        outputs=results,
        detail={"data": data} if data else {},
    )


_starting = threading.Lock()  # what follows changes this process, for all threads


@contextlib.contextmanager
def _set(mapping: MutableMapping, new: dict) -> Iterator[None]:
    """Have these entries for a while."""
    old = {key: mapping[key] for key in new if key in mapping}
    mapping.update(new)
    try:
        yield
    finally:
        for key in new:
            del mapping[key]
        mapping.update(old)


def triton() -> dict[str, str]:
    """The variable that makes Triton interpret its kernels where there is no GPU."""
    has_gpu = machine.gpus() and "+cpu" not in machine.package_version("torch")
    interpret = os.environ.get("TRITON_INTERPRET", "" if has_gpu else "1")
    return {"TRITON_INTERPRET": interpret} if interpret else {}


def _variables(folder: Path, where: Path) -> dict[str, str]:
    """The environment of a run: reproducible output, `python` is this Python.

    In a project, `python` has the packages of this one, and pip installs elsewhere.
    """
    python = sys.executable if where == ROOT else _environment(folder / "venv")
    (folder / "bin").mkdir()
    for name in ("python", "python3"):
        script = folder / "bin" / name
        # A command that sets PYTHONPATH itself is traced all the same.
        path = f"PYTHONPATH='{_TRACE}'${{PYTHONPATH:+:$PYTHONPATH}}"
        script.write_text(f'#!/bin/sh\n{path} exec "{python}" "$@"\n')
        script.chmod(0o755)
    path = [str(folder / "bin"), os.path.dirname(sys.executable), os.environ["PATH"]]
    python_path = [str(_TRACE), os.environ.get("PYTHONPATH", "")]
    variables = dict(os.environ) | {
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": os.pathsep.join(filter(None, python_path)),
        "PYTHONUNBUFFERED": "1",
        "PROOF_FOLDER": str(folder),
        "PROOF_OPENED": str(folder / "opened"),
        "PROOF_COMPILES": str(folder / "compiles"),
        "RECORD_DATA": str(folder / "data.json"),
        "TORCHINDUCTOR_CACHE_DIR": str(_inductor_cache()),
        "BASH_ENV": str(compiles.SHELL_FUNCTIONS),
        "MPLBACKEND": "Agg",
        "COLUMNS": "88",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }
    variables |= triton()
    variables.pop("CI", None)  # pytest and torch would say more than to a reader
    if where != ROOT:
        variables |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PROOF_PROJECT": str(where)}
        settings = build.keep_objects(where / "build" / "temp")
    else:
        # A build that a page shows reuses the objects of the library. The rest is its
        # own: two pages that make a wheel may run at the same time.
        settings = build.keep_objects(build.TEMP)
        settings += f"[build]\nbuild_lib = {folder}/lib\n"
        settings += f"[bdist_wheel]\nbdist_dir = {folder}/wheel\n"
    config = folder / "build_ext.cfg"
    config.write_text(settings)
    return variables | {"DIST_EXTRA_CONFIG": str(config)}


@cache
def _inductor_cache() -> Path:
    """A folder for the operators as they are: Inductor does not notice their edits."""
    places = [ROOT / name for name in ("csrc", "src", "starter")]
    sources = (path for place in places for path in sorted(place.rglob("*.*")))
    known = json.dumps(digests(sources)).encode()
    return ROOT / "build" / "proof" / f"inductor-{digest.of_bytes(known)[:12]}"


def _environment(home: Path) -> Path:
    """Make an environment with the packages of this one; return its Python."""
    venv.create(home)
    own = sysconfig.get_path("purelib", vars={"base": str(home)})
    Path(own, "known.pth").write_text("\n".join(packages()) + "\n")
    return home / "bin" / "python"


def packages() -> list[str]:
    """The folders in which this Python finds installed packages."""
    return [path for path in sys.path if path.endswith("-packages")]


def _wait(process, receiver) -> tuple[object, str]:
    """What the process returned, and why it did not."""
    try:
        return receiver.recv() if receiver.poll(TIMEOUT) else (None, LATE)
    except EOFError:
        process.join()
        code = process.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return None, f"the process ended with {how}"


def _child(sender, variables, function, args) -> None:
    os.setsid()  # so that a timeout ends the children too
    os.environ.clear()
    os.environ.update(variables)
    where = variables.get("PROOF_PROJECT", ROOT)
    os.chdir(where)
    if where != ROOT:
        sys.path.insert(0, f"{where}/src")
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.stdout = sys.stderr = open(  # noqa: SIM115 - for the life of the process
        1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )
    runpy.run_path(str(_TRACE / "sitecustomize.py"))
    compiles.watch(Path(variables["PROOF_COMPILES"]))
    try:
        answer = function(*args), ""
    except BaseException:
        answer = None, traceback.format_exc()
    sender.send(answer)


def _lines(file: Path) -> list[str]:
    """What all processes of a run wrote into a file."""
    return file.read_text(errors="replace").splitlines() if file.exists() else []


def _inputs(notes: list[str]) -> tuple[set[str], set[str]]:
    """Files that the run read and did not write, and those of them read as text."""
    written = {note[1:] for note in notes if note[0] == "w"}

    def named(signs: str) -> set[str]:
        paths = {note[1:] for note in notes if note[0] in signs} - written
        names = set(filter(None, map(relative, paths)))
        return {n for n in names if n != "docs" and not n.startswith("docs/_ext")}

    return named("rt"), named("t")


def _texts(names: set[str]) -> str:
    """The programs among these files but the library: they name what they call."""
    programs = (n for n in names if n.endswith((".py", ".sh", ".ipynb")))
    files = (ROOT / n for n in programs if not n.startswith("src/"))
    return "\n".join(file.read_text() for file in files if file.is_file())

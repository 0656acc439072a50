"""Run code in a process of its own, and note what it read and which lines it ran."""

import contextlib
import ctypes
import datetime
import doctest
import hashlib
import importlib
import importlib.util
import json
import multiprocessing
import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import traceback
import types
import venv
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import build, compiles, evidence, page, projects, repl
from .evidence import PROJECTS, ROOT, Record, original_of, relative
from .page import Block, Result

# A fork server that has these loaded gives isolation for the price of a fork. `opcheck`
# comes with the compiler and Triton, which many pages use. Nothing of this repository
# is here: a run notes its own imports of that.
PRELOAD = ["torch", "torch.testing._internal.optests"]
TIMEOUT = 600

_RUNS = re.compile(r"(python[\d.]*|pytest)$")
_TRACE = Path(__file__).parent / "trace"
_COVERAGE = """\
[run]
data_file = {folder}/coverage
parallel = true
disable_warnings = no-data-collected, module-not-measured, couldnt-parse
include =
    {root}/src/*
    {root}/tests/*
    {root}/examples_src/*
    {root}/build/projects/*
    {root}/*.py
"""


@dataclass
class Run:
    """How a call in a process of its own ended, and what it depended on."""

    value: object = None
    error: str = ""
    inputs: dict[str, str] = field(default_factory=dict)
    statements: dict[str, list[int]] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    compiled: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, list[str]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    tools: set[str] = field(default_factory=set)

    def record(self, kind: str, what: str, **more) -> Record:
        """The record of this run, dated, with what its compilers took and refused."""
        detail = {
            "date": datetime.date.today().isoformat(),
            "compiled": self.compiled,
            "refused": self.refused,
            "skipped": self.skipped,
        }
        detail |= more.pop("detail", {})
        more = {"inputs": self.inputs, "statements": self.statements, **more}
        environment = evidence.versions(self.tools)
        return Record(kind, what, environment=environment, detail=detail, **more)


def call(
    function: Callable,
    *args,
    measure: bool = False,
    fresh=False,
    timeout=TIMEOUT,
    where: Path = ROOT,
) -> Run:
    """Call a function in a fresh process.

    Args:
        function: any function that pickle finds by name.
        *args: its arguments, which must pickle.
        measure: whether to note executed lines, where coverage is installed. Timings
            suffer from it, so gallery scripts and pages that run alone go without.
        fresh: whether to start a new Python instead of a fork that has PRELOAD.
        timeout: seconds until the process and all its children are killed.
        where: the folder in which to call it: the repository, or a page's project,
            which has an environment of its own.
    """
    context = multiprocessing.get_context("spawn" if fresh else "forkserver")
    if not fresh:
        context.set_forkserver_preload(PRELOAD)
    receiver, sender = context.Pipe(duplex=False)
    measure = measure and bool(importlib.util.find_spec("coverage"))
    with tempfile.TemporaryDirectory(prefix="proof-") as folder:
        variables = _variables(Path(folder), measure, where)
        process = context.Process(
            target=_child, args=(sender, variables, measure, function, args)
        )
        with _starting, _without_main(), _interpreter():
            process.start()
        sender.close()
        try:
            run = _wait(process, receiver, timeout)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.join()
            receiver.close()
        run.compiled, run.refused = compiles.read(Path(folder, "compiles"))
        if where != ROOT:
            machine = evidence.environment()["machine"]
            for path in build.dependencies_in(where):
                run.compiled.setdefault(relative(path), [machine])
        run.statements = _statements(Path(folder)) if measure else {}
        run.results = _results(Path(folder))
        read, text = _inputs(notes := _notes(Path(folder)))
        run.tools = {note[1:] for note in notes if note[0] == "?"}
        run.tools |= compiles.programs(Path(folder, "compiles"))
        missed = (note[1:].split("\0") for note in notes if note[0] == "!")
        run.skipped = {n: why for path, why in missed if (n := relative(path))}
        native = compiles.included(read) | {*run.compiled, *run.refused, *run.skipped}
        inputs = evidence.digests((ROOT / name for name in read | native), text)
        printed = "\n".join(result.text for result in run.results)
        run.inputs = evidence.pinned(inputs, printed)
    return run


_starting = threading.Lock()  # what follows changes this process, for all threads


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Hide the main module: a child would import sphinx-build or pytest again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _interpreter() -> Iterator[None]:
    """Tell the fork server to interpret Triton's kernels, where there is no GPU.

    Triton reads the variable when it is imported, which the server does at its start.
    """
    known = os.environ.get("TRITON_INTERPRET")
    os.environ.update(_triton())
    try:
        yield
    finally:
        if known is None:
            os.environ.pop("TRITON_INTERPRET", None)


def _triton() -> dict[str, str]:
    versions = evidence.environment()
    has_gpu = versions["gpu"] and "+cpu" not in versions["torch"]
    interpret = os.environ.get("TRITON_INTERPRET", "" if has_gpu else "1")
    return {"TRITON_INTERPRET": interpret} if interpret else {}


def _variables(folder: Path, measure: bool, where: Path) -> dict[str, str]:
    """The environment of a run: reproducible output, `python` is this Python.

    In a project, `python` has the packages of this one, and pip installs elsewhere.
    """
    (folder / "bin").mkdir()
    python = sys.executable if where == ROOT else _environment(folder / "venv")
    for name in ("python", "python3"):
        script = folder / "bin" / name
        # Nothing that pip runs is shown line by line, and tracing it takes seconds.
        script.write_text(
            f'#!/bin/sh\n[ "$2" = pip ] && unset PROOF_COVERAGE\nexec "{python}" "$@"\n'
        )
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
        "MPLBACKEND": "Agg",
        "COLUMNS": "88",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }
    variables |= _triton()
    variables.pop("CI", None)  # pytest and torch would say more than to a reader
    config = folder / "build_ext.cfg"
    if where != ROOT:
        variables |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PROOF_PROJECT": str(where)}
        config.write_text(build.keep_objects(where / "build" / "temp"))
        variables["DIST_EXTRA_CONFIG"] = str(config)
    elif evidence.BUILD_CONFIG.exists():
        # A build that a page shows reuses the objects of the library. The rest is its
        # own: two pages that make a wheel may run at the same time.
        own = f"[build]\nbuild_lib = {folder}/lib\n"
        own += f"[bdist_wheel]\nbdist_dir = {folder}/wheel\n"
        config.write_text(f"{evidence.BUILD_CONFIG.read_text()}{own}")
        variables["DIST_EXTRA_CONFIG"] = str(config)
    if measure:
        rc = folder / "coveragerc"
        rc.write_text(_COVERAGE.format(folder=folder, root=ROOT))
        noted = [ROOT / name for name in ("src", "tests", "examples_src")]
        noted += where.iterdir() if where != ROOT else []
        variables["PROOF_COVERAGE"] = str(rc)
        variables["PROOF_NOTED"] = os.pathsep.join(map(str, noted))
    return variables


def _environment(home: Path) -> Path:
    """Make an environment with the packages of this one; return its Python."""
    venv.create(home)
    packages = sysconfig.get_path("purelib", vars={"base": str(home)})
    Path(packages, "known.pth").write_text("\n".join(_packages()) + "\n")
    return home / "bin" / "python"


def _packages() -> list[str]:
    """The folders in which this Python finds installed packages."""
    return [path for path in sys.path if path.endswith("-packages")]


def _wait(process, receiver, timeout: float) -> Run:
    try:
        if not receiver.poll(timeout):
            return Run(error=f"no end after {timeout} s")
        ok, answer = receiver.recv()
        return Run(value=answer) if ok else Run(error=answer)
    except EOFError:
        process.join()
        code = process.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return Run(error=f"the process ended with {how}")


def _child(sender, variables, measure, function, args) -> None:
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
        answer = (True, function(*args))
    except BaseException:
        answer = (False, traceback.format_exc())
    if measure:
        import coverage

        if started := coverage.Coverage.current():
            started.stop()
            started.save()
    sender.send(answer)


# What a run depended on.


def _notes(folder: Path) -> list[str]:
    """What trace/sitecustomize.py wrote in all processes of the run."""
    opened = folder / "opened"
    return opened.read_text(errors="replace").splitlines() if opened.exists() else []


def _inputs(notes: list[str]) -> tuple[set[str], set[str]]:
    """Files that the run read and did not write, and those of them read as text."""
    written = {note[1:] for note in notes if note[0] == "w"}

    def named(signs: str) -> set[str]:
        paths = {note[1:] for note in notes if note[0] in signs} - written
        names = set(filter(None, map(relative, paths)))
        return {n for n in names if n != "docs" and not n.startswith("docs/_ext")}

    return named("rt"), named("t")


def _statements(folder: Path) -> dict[str, list[int]]:
    """The statements that ran, for Python files of the repository."""
    import coverage

    lines: dict[str, set[int]] = {}
    for file in folder.glob("coverage.*"):
        data = coverage.CoverageData(str(file))
        try:
            data.read()
        except coverage.exceptions.CoverageException:
            continue  # a process that was killed while it wrote
        for path in data.measured_files():
            if name := relative(path):
                ran = data.lines(path) or []
                if Path(path).is_relative_to(PROJECTS):
                    _, original = original_of(path)
                    ran = [original[line - 1] for line in ran if line]
                lines.setdefault(name, set()).update(ran)
    return {
        name: [
            number
            for number, (first, last) in enumerate(evidence.statements(name))
            if not ran.isdisjoint(range(first, last + 1))
        ]
        for name, ran in sorted(lines.items())
    }


def _results(folder: Path) -> list[Result]:
    file = folder / "results"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [Result(**json.loads(line)) for line in lines]


# Pages.


def run_page(path: Path, *, reuse: bool = True) -> list[Result]:
    """Run the blocks of a page, in order, in one process and one namespace.

    Args:
        path: the Markdown file.
        reuse: whether to take the results of a current record instead.
    """
    if reuse and (results := known_results(path)):
        return results
    blocks = page.parse(path)
    what = f"page:{page.name(path)}"
    fresh = page.starts_fresh(path)
    step = page.project(path)
    run = call(
        _run_blocks,
        page.name(path),
        blocks,
        measure=reuse and not page.runs_alone(path),
        fresh=fresh,
        where=projects.write(page.name(path), step) if step else ROOT,
    )
    results = run.results
    if run.error and len(results) < len(blocks):
        results.append(Result(status="failed", reason=run.error))
    while len(results) < len(blocks):
        results.append(Result(status="not_run", reason="an earlier block failed"))
    if not reuse:
        return results
    if any(map(page.problem, blocks, results)):
        evidence.store().drop(what)
        return results
    skipped = _skipped(blocks, results)
    run.inputs |= evidence.digests(ROOT / name for name in skipped)
    run.inputs |= projects.inputs(step) if step else {}
    detail = {"blocks": blocks_digest(path), "skipped": run.skipped | skipped}
    outputs = [asdict(result) for result in results]
    evidence.store().save(run.record("ran", what, outputs=outputs, detail=detail))
    return results


def run_pages(paths: list[Path]) -> Iterator[Path]:
    """Run pages, as many at once as this machine holds; yield each when it has run.

    A page that fails leaves no record: who asks for its results runs it again, alone.
    """
    evidence.environment()  # asked once, and not by all threads
    with ThreadPoolExecutor(workers()) as pool:
        for path, _ in zip(paths, pool.map(run_page, paths), strict=True):
            yield path


def workers() -> int:
    """How many pages run at once: one for each core that has 4 GiB of memory."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(os.cpu_count(), memory // (4 << 30)))


def known_results(path: Path) -> list[Result]:
    """The results of a page's blocks from a current record; none without one."""
    record = evidence.store().get(f"page:{page.name(path)}")
    if record and record.detail["blocks"] == blocks_digest(path):
        return [Result(**output) for output in record.outputs]
    return []


def _skipped(blocks: list[Block], results: list[Result]) -> dict[str, str]:
    """Sources that blocks name which were not run, each with the reason."""
    return {
        name: result.reason
        for block, result in zip(blocks, results, strict=True)
        if result.status == "not_run"
        for name in compiles.native_files(re.findall(r"[\w./+-]+", block.code))
    }


def blocks_digest(path: Path) -> str:
    """Digest what is run, and whether alone: prose may change without a new run."""
    text = [[b.language, b.code, b.fails, b.needs] for b in page.parse(path)]
    text.append(page.runs_alone(path))
    return hashlib.sha256(json.dumps(text).encode()).hexdigest()


def _run_blocks(name: str, blocks: list[Block]) -> None:
    """Run the blocks; each result is written at once, for the next may crash."""
    with open(Path(os.environ["PROOF_FOLDER"], "results"), "w") as file:
        for number, block in enumerate(blocks, 1):
            result = _run_block(f"<{name}, block {number}>", block)
            file.write(json.dumps(asdict(result)) + "\n")
            file.flush()
            if page.problem(block, result):
                return


def _run_block(title: str, block: Block) -> Result:
    if missing := [need for need in block.needs if not _has(need)]:
        return Result(status="not_run", reason=f"needs {', '.join(missing)}")
    result = Result()
    with tempfile.TemporaryFile() as sink:
        with _captured(sink):
            if block.language == "python":
                _run_python(title, block, result)
            else:
                _run_commands(block, result)
        sink.seek(0)
        result.text = sanitise(sink.read().decode("utf-8", "replace"))
    return result


def _has(need: str) -> bool:
    """Whether one of ``a|b`` is here: a command, a package, "gpu", or "torch>=2.13"."""
    return any(map(_has_one, need.split("|")))


def _has_one(need: str) -> bool:
    name, at_least, version = need.partition(">=")
    if name == "gpu":
        return bool(evidence.environment()["gpu"])
    if at_least:
        have, want = (
            [int(part) for part in re.findall(r"\d+", text)[:2]]
            for text in (evidence.environment().get(name, ""), version)
        )
        return have >= want
    sys.audit("opbook.find", name)
    return bool(shutil.which(name) or evidence.package_version(name))


@contextlib.contextmanager
def _captured(sink) -> Iterator[None]:
    """Send the file descriptors to `sink`: printf and child processes count too."""
    _flush()
    saved = os.dup(1), os.dup(2)
    os.dup2(sink.fileno(), 1)
    os.dup2(sink.fileno(), 2)
    try:
        yield
    finally:
        _flush()
        for descriptor, copy in zip((1, 2), saved, strict=True):
            os.dup2(copy, descriptor)
            os.close(copy)


def _flush() -> None:
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)


def _run_python(title: str, block: Block, result: Result) -> None:
    """Run code like a REPL: the value of a last expression is printed."""
    try:
        tree = repl.parse(block.code, title)
        if not tree.body:
            raise ValueError("the block is empty")
        value = repl.evaluate(tree, title, vars(sys.modules["__main__"]))
        if value is not None:
            print(repr(value))
    except SystemExit as stop:
        if stop.code not in (None, 0):
            skip = str(stop.code).startswith("skip: ")
            result.status = "not_run" if skip else "failed"
            result.reason = str(stop.code).removeprefix("skip: ")
    except BaseException as error:
        result.status = "failed"
        report = traceback.TracebackException.from_exception(error)
        own = [f.lineno for f in report.stack if f.filename == title]
        result.line = own[-1] if own else getattr(error, "lineno", None)
        _trim(report)
        print("".join(report.format()), end="")
        result.reason = sanitise(list(report.format_exception_only())[-1].strip())


def _trim(report: traceback.TracebackException | None) -> None:
    """Keep the frames of the page and of this repository: what the reader wrote."""
    while report:
        kept = [frame for frame in report.stack if _is_shown(frame.filename)]
        report.stack = traceback.StackSummary.from_list(kept)
        report = report.__cause__ or report.__context__


def _is_shown(filename: str) -> bool:
    if filename.startswith("<"):
        return not filename.startswith("<frozen")
    if Path(filename).is_relative_to(PROJECTS):
        return True
    name = relative(filename)
    return bool(name) and not name.startswith("docs/_ext/")


def _run_commands(block: Block, result: Result) -> None:
    for line, command in page.commands(block):
        words = _words(command)
        # A program that neither compiles nor runs a file may show its text.
        runs = compiles.starts_compiler(words) or _RUNS.match(words[0] if words else "")
        for word in filter(os.path.isfile, words):  # a script for bash is one as well
            open(word, "rb" if runs else "r").close()
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            env=os.environ | {"BASH_ENV": str(compiles.SHELL_FUNCTIONS)},
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            result.status = "failed"
            result.reason = f"exit status {done.returncode}: {command}"
            result.line = line
            return


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []


def sanitise(text: str) -> str:
    """Take this machine's folders and terminal codes out of an output."""
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).replace("\r\n", "\n")
    text = re.sub(r"[^\n]*\r", "", text)  # a progress bar leaves its last state
    places = dict.fromkeys(_packages(), "site-packages")
    places[os.environ.get("PROOF_PROJECT", str(ROOT))] = "."
    places[str(ROOT)] = "."
    if folder := os.environ.get("PROOF_FOLDER"):
        places[f"{folder}/bin"] = places[f"{folder}/venv/bin"] = "bin"
        own = sysconfig.get_path("purelib", vars={"base": f"{folder}/venv"})
        places[own] = "site-packages"
    if len(home := str(Path.home())) > 1:
        places[home] = "~"
    for folder, short in places.items():
        text = re.sub(re.escape(folder) + r"(?![\w.-])", short, text)
    return text.rstrip()


# Docstrings.


def file_that_defines(name: str) -> Path:
    """The file of the module that an object's full name begins with."""
    with contextlib.suppress(ModuleNotFoundError):  # raised for part of a module
        if (spec := importlib.util.find_spec(name)) is not None:
            return Path(spec.origin)
    return file_that_defines(name.rpartition(".")[0])


def run_doctest(path: Path) -> str:
    """Run the examples in a module's docstrings.

    Returns:
        What failed; "" when the examples gave what they show.
    """
    name = relative(path)
    what = f"doctest:{name}"
    if evidence.store().get(what):
        return ""
    module = ".".join(Path(name).relative_to("src").with_suffix("").parts)
    run = call(_run_doctest, module.removesuffix(".__init__"), measure=True)
    if problem := run.error or run.value:
        evidence.store().drop(what)
        return problem
    run.inputs |= evidence.digests([path], text=[name])
    evidence.store().save(run.record("ran", what))
    return ""


def _run_doctest(name: str) -> str:
    module = importlib.import_module(name)
    report: list[str] = []
    package = name.partition(".")[0]
    known = {package: importlib.import_module(package)}  # as readers import it
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in doctest.DocTestFinder().find(module, name, extraglobs=known):
        runner.run(test, out=report.append)
    if runner.tries == 0:
        return f"no example of {name} was found"
    return sanitise("".join(report))

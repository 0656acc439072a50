"""Run the blocks of a page as an interactive Python and a shell would."""

import ast
import contextlib
import ctypes
import doctest
import importlib
import importlib.util
import json
import linecache
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from . import compiles, machine, page, process
from .files import PROJECTS, ROOT, relative
from .page import Block, Result

_RUNS = re.compile(r"(python[\d.]*|pytest)$")


def run_blocks(name: str, blocks: list[Block]) -> None:
    """Run the blocks; each result is written at once, for the next may crash."""
    with open(Path(os.environ["PROOF_FOLDER"], "results"), "w") as file:
        for number, block in enumerate(blocks, 1):
            result = _run_block(f"<{name}, block {number}>", block)
            file.write(json.dumps(asdict(result)) + "\n")
            file.flush()
            if page.problem(block, result):
                return


def _run_block(title: str, block: Block) -> Result:
    if missing := [need for need in block.needs if not has(need)]:
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


def has(need: str) -> bool:
    """Whether one of ``a|b`` is here: a command, a package, "gpu", or "torch>=2.13"."""
    return any(map(_has_one, need.split("|")))


def _has_one(need: str) -> bool:
    name, at_least, version = need.partition(">=")
    if name == "gpu":
        return bool(machine.gpus())
    if at_least:
        have, want = (
            [int(part) for part in re.findall(r"\d+", text)[:2]]
            for text in (machine.environment().get(name, ""), version)
        )
        return have >= want
    sys.audit("opbook.find", name)
    return bool(shutil.which(name) or machine.package_version(name))


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
        # Tracebacks and inspect.getsource, which triton.jit uses, find the text here.
        source = f"{block.code}\n"
        linecache.cache[title] = (len(source), None, source.splitlines(True), title)
        body, names = ast.parse(source, title).body, vars(sys.modules["__main__"])
        if not body:
            raise ValueError("the block is empty")
        end = [body.pop()] if isinstance(body[-1], ast.Expr) else []
        exec(compile(ast.Module(body, []), title, "exec"), names)
        for last in end:
            value = eval(compile(ast.Expression(last.value), title, "eval"), names)
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
    places = dict.fromkeys(process.packages(), "site-packages")
    if cache := os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        places[cache] = "/tmp/torchinductor"
    places[os.environ.get("PROOF_PROJECT", str(ROOT))] = "."
    places[str(ROOT)] = "."
    if folder := os.environ.get("PROOF_FOLDER"):
        places[f"{folder}/bin"] = places[f"{folder}/venv/bin"] = "bin"
        own = sysconfig.get_path("purelib", vars={"base": f"{folder}/venv"})
        places[own] = "site-packages"
    if len(home := str(Path.home())) > 1:
        if sys.base_prefix.startswith(home):
            places[sys.base_prefix] = "python"
        places[home] = "~"
    for folder, short in places.items():
        text = re.sub(re.escape(folder) + r"(?![\w.-])", short, text)
    return text.rstrip()


# Docstrings.


def run_doctest(name: str) -> str:
    """Run the examples of a module; return what failed, empty if nothing."""
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

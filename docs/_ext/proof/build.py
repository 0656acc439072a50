"""Build the library and compile the kernels: evidence for the origin ``compiled``."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from . import evidence
from .evidence import (
    BUILD_CONFIG,
    EVIDENCE,
    ROOT,
    Record,
    digests,
    environment,
    relative,
    store,
)

LIBRARY, SETUP = "build:library", "build:setup"
TEMP = ROOT / "build" / "temp"
KERNELS = ROOT / "build" / "kernels"
CODE_OBJECTS = EVIDENCE / "code_objects.json"


class BuildError(RuntimeError):
    """Something that stops the build of the book, in one line with the remedy."""


def build_library(say: Callable[[str], None]) -> None:
    """Install the package in place, unless the last build is still good."""
    sources = _library_sources()
    record = store().get(LIBRARY)
    if record and record.detail["sources"] == sources and _is_importable():
        say("library: up to date")
        return
    if not evidence.toolchain.find("c++"):
        raise BuildError("no C++ compiler found: install g++ or clang, or set CXX")
    say("library: building (pip install --no-build-isolation -e .)")
    store().drop(LIBRARY)
    _install()
    dependencies = dependencies_in(TEMP)
    if not dependencies:
        raise BuildError("library: the compiler left no record: is ninja installed?")
    libraries = sorted((ROOT / "src").glob("*/_C*.so"))
    inputs = digests([*dependencies, *sources, *libraries])
    machine = environment()["machine"]
    store().save(
        Record("compiled", LIBRARY, inputs, [machine], detail={"sources": sources})
    )
    # The files that said how to build were read; they were run, not compiled.
    steps = digests(["setup.py", "pyproject.toml"])
    store().save(Record("ran", SETUP, steps))
    say(f"library: built for {machine}")


def _library_sources() -> dict[str, str]:
    files = [ROOT / "setup.py", ROOT / "pyproject.toml"]
    has_cuda = "+cpu" not in environment()["torch"]
    for suffix in (".h", ".cpp", *([".cu"] if has_cuda else [])):
        files += (ROOT / "csrc").rglob(f"*{suffix}")
    return digests(files)


def _is_importable() -> bool:
    """Whether this Python, perhaps of a new environment, knows the package."""
    packages = [path.parent.name for path in (ROOT / "src").glob("*/__init__.py")]
    return all(map(importlib.util.find_spec, packages))


def _install() -> None:
    """Run pip; the objects stay in build/temp, so that ninja knows what is done."""
    BUILD_CONFIG.parent.mkdir(parents=True, exist_ok=True)
    BUILD_CONFIG.write_text(keep_objects(TEMP))
    variables = os.environ | {"DIST_EXTRA_CONFIG": str(BUILD_CONFIG)}
    variables["PATH"] = _search_path()
    options = ["--no-build-isolation", "--no-deps", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "-e", str(ROOT)]
    done = subprocess.run(
        command, env=variables, cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildError(f"library: the build failed\n{done.stdout}{done.stderr}")


def keep_objects(folder: Path) -> str:
    """The setting by which setuptools keeps objects there, for ninja to reuse."""
    # setuptools knows the command by its own name and by that of torch's class.
    names = ("build_ext", "BuildExtension")
    return "".join(f"[{name}]\nbuild_temp = {folder}\n" for name in names)


def dependencies_in(folder: Path) -> set[str]:
    """Every file that the compiler read, by its own record, which ninja keeps there."""
    found = set()
    for log in folder.rglob(".ninja_deps"):
        command = [shutil.which("ninja", path=_search_path()), "-t", "deps"]
        answer = subprocess.run(
            command, cwd=log.parent, capture_output=True, text=True, check=True
        ).stdout
        found |= {
            os.path.join(log.parent, line.strip())
            for line in answer.splitlines()
            if line.startswith("    ")
        }
    return {path for path in found if relative(path)}


def _search_path() -> str:
    """PATH with this Python's folder, where ninja is, activated or not."""
    return os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])


def compile_kernels(say: Callable[[str], None]) -> None:
    """Compile each .cu of csrc/ for each target, as far as the tools are here."""
    path = ROOT / "src" / "codeobjects.py"
    if not path.exists():
        return
    codeobjects = evidence.load(path)
    sources = sorted((ROOT / "csrc").glob("*/*.cu"))
    jobs = {
        _name(source, target): (source, target)
        for source in sources
        for target in codeobjects.TARGETS
    }
    todo = {what: job for what, job in jobs.items() if not _is_done(what, path)}
    for what in store().names():
        if what.startswith("compile:") and (what in todo or what not in jobs):
            store().drop(what)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = pool.map(lambda job: _compile(codeobjects, *job), todo.values())
        for number, (what, record) in enumerate(zip(todo, compiled, strict=True), 1):
            record.what = what
            record.inputs |= digests([path])
            store().save(record)
            how = record.detail.get("reason", "compiled")
            say(f"[{number}/{len(todo)}] {what.partition(':')[2]}: {how}")
    if len(todo) < len(jobs):
        say(f"kernels: {len(jobs) - len(todo)} of {len(jobs)} up to date")
    records = filter(None, map(store().get, jobs))
    figures = [record.outputs[0] for record in records if record.outputs]
    if figures != evidence.read_json(CODE_OBJECTS, None):  # pages depend on the file
        evidence.write_json(CODE_OBJECTS, figures)


def code_object(source: Path, target: str) -> dict | None:
    """What `compile_kernels` made of the source as it is now, as ``asdict`` had it."""
    made = evidence.read_json(_report(source, target), None)
    # A copy of a checkout brings its records along; this names files.
    is_here = bool(made) and Path(made["path"]).parent == KERNELS
    return made if is_here and store().get(_name(source, target)) else None


def _name(source: Path, target: str) -> str:
    return f"compile:{relative(source)}:{target}"


def _report(source: Path, target: str) -> Path:
    return KERNELS / f"{source.stem}.{target}.json"


def _is_done(what: str, codeobjects: Path) -> bool:
    record = store().get(what)
    return bool(record) and relative(codeobjects) in record.inputs


def _compile(codeobjects, source: Path, target: str) -> Record:
    """Compile for one target; a missing tool is a record too, with its reason."""
    used = evidence.versions(["nvcc" if target.startswith("sm_") else "clang"])
    try:
        made = codeobjects.compile_kernel(source, target, KERNELS)
    except codeobjects.ToolMissing as missing:
        reason = {"reason": str(missing)}
        inputs = digests([source])
        return Record("not_run", "", inputs, [target], used, detail=reason)
    except codeobjects.CompileError as error:
        raise BuildError(f"{relative(source)} for {target}:\n{error}") from None
    figures = {
        "source": relative(source),
        "target": made.target,
        "compiler": made.compiler,
        "wave_size": made.wave_size,
        "kernels": [asdict(kernel) for kernel in made.kernels],
    }
    text = json.dumps(asdict(made), default=str)
    evidence.write_text(_report(source, target), text)
    inputs = digests([source, *made.dependencies])
    detail = {"command": list(map(str, made.command))}
    return Record("compiled", "", inputs, [target], used, {}, [figures], detail)

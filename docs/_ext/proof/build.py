"""Build the library, and compile its GPU kernels."""

import importlib.util
import itertools
import json
import os
import platform
import re
import site
import subprocess
import sys
import sysconfig
import textwrap
from dataclasses import asdict
from functools import cache
from pathlib import Path

from . import compiles, machine
from .digest import NATIVE
from .evidence import HERE, Record, store
from .files import ROOT, BuildError, digests, load, read_json, relative, write_text

SETUP = "build:setup.py"
TEMP = ROOT / "build" / "temp"  # of setuptools: builds share the objects
KERNELS = ROOT / "build" / "kernels"


# The library.


def build_library() -> None:
    """Install the package in place, unless the last build is still good."""
    if not (ROOT / "csrc").is_dir():
        return
    if _is_current():
        print("library: up to date", flush=True)
        return
    if not machine.toolchain.find("c++"):
        raise BuildError("no C++ compiler found: install g++ or clang, or set CXX")
    print("library: building (pip install --no-build-isolation -e .)", flush=True)
    _install()
    for what in store().names():
        if what.startswith("build:"):
            store().drop(what, HERE)
    here = platform.machine()
    for source in sources():
        inputs = digests({source} | compiles.included({source}))
        compiled = {name: [here] for name in inputs}
        what = f"build:{source}"
        store().save(Record(what, "compiled", inputs=inputs, compiled=compiled))
    # The files that said how to build were read; they were run, not compiled.
    steps = digests(["setup.py", "pyproject.toml"])
    store().save(Record(SETUP, "ran", inputs=steps))
    print(f"library: built for {here}", flush=True)


def sources() -> set[str]:
    """What the library is compiled from on this machine."""
    found = {*(ROOT / "csrc").rglob("*.cpp")}
    if "+cpu" not in machine.package_version("torch"):
        found |= {*(ROOT / "csrc").glob("*/*.cu")}
    return {name for path in found if (name := relative(path))}


def records() -> set[str]:
    """The names of the records of the library's build."""
    return {f"build:{name}" for name in sources()} | {SETUP}


def _is_current() -> bool:
    packages = [path.parent.name for path in (ROOT / "src").glob("*/__init__.py")]
    return (
        all(map(store().here, records()))
        and any((ROOT / "src").glob("*/_C*.so"))
        and all(map(_is_found, packages))
    )


def _is_found(package: str) -> bool:
    """Whether this Python imports it from here: a copy finds that of its original."""
    found = importlib.util.find_spec(package)
    return bool(found and found.origin and relative(found.origin))


def _install() -> None:
    """Run pip; the objects stay in build/temp, so that ninja knows what is done."""
    settings = ROOT / "build" / "proof" / "build_ext.cfg"
    write_text(settings, keep_objects(TEMP))
    variables = os.environ | {"DIST_EXTRA_CONFIG": str(settings)}
    variables["PATH"] = _search_path()
    options = ["--no-build-isolation", "--no-deps", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "-e", str(ROOT)]
    done = subprocess.run(
        command, env=variables, cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = done.stdout + done.stderr
        raise BuildError(f"library: the build failed\n{by_compiler(said) or said}")
    site.addsitedir(sysconfig.get_path("purelib"))  # this process finds it too


def by_compiler(said: str) -> str:
    """What compilers refused, of the hundreds of lines that pip and ninja print."""
    end = r"^ *(?:\[\d+/\d+\]|FAILED:|ninja:) "
    failed = rf"FAILED: [^\n]*\n[^\n]*\n(.*?)(?={end})"
    found = re.findall(failed, said, re.DOTALL | re.MULTILINE)
    return "\n".join(map(textwrap.dedent, found)).replace(f"{ROOT}/", "")


def keep_objects(folder: Path) -> str:
    """The setting by which setuptools keeps objects there, for ninja to reuse."""
    # setuptools knows the command by its own name and by that of torch's class.
    names = ("build_ext", "BuildExtension")
    return "".join(f"[{name}]\nbuild_temp = {folder}\n" for name in names)


def compiled_in(project: Path) -> set[str]:
    """The sources of a page's project that were compiled there, with their headers."""
    objects = {path.stem for path in (project / "build").rglob("*.o")}
    found = [path for path in project.rglob("*.c*") if path.stem in objects]
    names = {name for path in found if (name := relative(path))}
    return names | compiles.included(names)


def _search_path() -> str:
    """PATH with this Python's folder, where ninja is, activated or not."""
    return os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])


def is_library(path: str) -> bool:
    """Whether a file is the library, which is loaded but is no source."""
    return path.endswith(".so") and Path(path).is_relative_to(ROOT / "src")


def sources_of_operators(text: str) -> set[str]:
    """The sources of the operators that a program names: on those it depends.

    A program that takes the operators from a list depends on all.
    """
    words = {*re.findall(r"\w+", text)}
    every = not words.isdisjoint(("__all__", "_dispatch_get_all_op_names"))
    found = set()
    for name in sources():
        operator = Path(name).parent.name
        is_shared = operator == "csrc"
        if every or is_shared or any(_names(word, operator) for word in words):
            record = store().here(f"build:{name}")
            found |= {*record.inputs} if record else set()
    return found


def _names(word: str, operator: str) -> bool:
    """Whether a word is the operator's, such as rms_norm_forward or RMSNorm."""
    camel_case = word.lower() == operator.replace("_", "")
    return word == operator or word.startswith(f"{operator}_") or camel_case


# GPU kernels.


def kernels() -> dict[str, tuple[Path, str]]:
    """Each kernel source of the library and target, by the name of its record."""
    found = sorted((ROOT / "csrc").glob("*/*.cu"))
    targets = _codeobjects().TARGETS if found else ()
    pairs = itertools.product(found, targets)
    return {_name(source, target): (source, target) for source, target in pairs}


def compile_kernel(source: Path, target: str) -> Record:
    """Compile for one target; a missing tool is a record too, with its reason.

    Raises:
        BuildError: the compiler refused the source.
    """
    codeobjects, what = _codeobjects(), _name(source, target)
    used = machine.versions(["nvcc" if target.startswith("sm_") else "clang"])
    reader = ROOT / "src" / "codeobjects.py"
    try:
        made = codeobjects.compile_kernel(source, target, KERNELS)
    except codeobjects.ToolMissing as missing:
        # What follows the colon is the remedy, for the console and not for a label.
        reason = str(missing).partition(":")[0]
        inputs = digests([source, reader])
        skipped = {relative(source): reason}
        return Record(what, "not_run", machine=used, inputs=inputs, skipped=skipped)
    except codeobjects.CompileError as error:
        raise BuildError(f"{relative(source)} for {target}:\n{error}") from None
    figures = {
        "source": relative(source),
        "target": made.target,
        "compiler": made.compiler,
        "wave_size": made.wave_size,
        "kernels": [asdict(kernel) for kernel in made.kernels],
    }
    write_text(_report(source, target), json.dumps(asdict(made), default=str))
    inputs = digests([source, *made.dependencies])
    compiled = {n: [target] for n in inputs if Path(n).suffix in NATIVE}
    detail = {"figures": figures}
    inputs |= digests([reader])
    return Record(
        what, "compiled", machine=used, inputs=inputs, compiled=compiled, detail=detail
    )


def code_object(source: Path, target: str) -> dict:
    """The code object of the source as it is now, as ``asdict`` has it.

    Raises:
        ToolMissing: there is no compiler for the target; the message says which.
    """
    what = _name(source, target)
    made = read_json(_report(source, target), None)
    # A copy of a checkout brings its records along; this names files.
    is_here = bool(made) and Path(made["path"]).parent == KERNELS
    if not (is_here and store().here(what)):
        record = compile_kernel(source, target)
        store().save(record)
        if record.skipped:
            raise _codeobjects().ToolMissing(record.skipped[relative(source)])
        made = read_json(_report(source, target), None)
    return made


@cache
def _codeobjects():
    return load(ROOT / "src" / "codeobjects.py")


def _name(source: Path, target: str) -> str:
    return f"compile:{relative(source)}:{target}"


def _report(source: Path, target: str) -> Path:
    return KERNELS / f"{source.stem}.{target}.json"

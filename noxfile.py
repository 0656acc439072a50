"""Everything this repository does, one session per verb: ``nox -l`` lists them.

Three verbs make the site: ``read`` lays it out from what was proven before, ``docs``
runs the guide, the gallery and the notebooks here, and ``prove`` runs everything. Every
output goes to build/, every environment to .nox/.
"""

from __future__ import annotations

import atexit
import difflib
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path, PurePosixPath
from types import ModuleType

import nox

nox.needs_version = ">=2025.2.9"
# The sessions share environments of their own making (see `environment`), so that torch
# is installed once and not once per session.
nox.options.default_venv_backend = "none"
nox.options.sessions = ["docs"]

ROOT = Path(__file__).resolve().parent
BUILD = ROOT / "build"
HTML = BUILD / "html"
STRICT = ["-W", "-n", "-T", "--keep-going"]


@nox.session
def read(session: nox.Session) -> None:
    """Lay the site out from docs/evidence: no torch, no compiler, nothing runs."""
    python = environment(session, "read", "read")
    sphinx(session, python, HTML, *STRICT, "-t", "read", *session.posargs)
    announce(HTML)


@nox.session
def docs(session: nox.Session) -> None:
    """Run guide, gallery, notebooks and what has changed here; build the site."""
    python = book(session)
    session.run(python, "-m", "proof", "docs", external=True)
    sphinx(session, python, HTML, *STRICT, *session.posargs)
    announce(HTML)


@nox.session
def prove(session: nox.Session) -> None:
    """Run all that this machine can run, and renew docs/evidence: [PAGE ...] [--check].

    ``--list`` runs nothing and shows what is stale, ``--shard I/N`` runs a part.
    """
    given = session.posargs
    names = [find_page(session, name) if is_page(name) else name for name in given]
    if "--list" in names:
        # It reads digests alone, so that it needs no environment of its own.
        session.env["PYTHONPATH"] = str(ROOT / "docs" / "_ext")
        session.run(sys.executable, "-m", "proof", "prove", *names, external=True)
        return
    session.run(book(session), "-m", "proof", "prove", *names, external=True)


@nox.session
def page(session: nox.Session) -> None:
    """Prove one page, script or notebook and show it: nox -s page -- NAME."""
    if len(session.posargs) != 1:
        session.error("name one page: nox -s page -- guide/6_gpu_kernel")
    name = find_page(session, session.posargs[0])
    python = book(session)
    runs = succeeds(session, python, "-m", "proof", "prove", name)
    session.env["OPBOOK_PAGE"] = name
    sphinx(session, python, HTML, *STRICT)  # which names the line of what failed
    announce(HTML / f"{name}.html")
    if not runs:
        session.error(f"{name} does not run as it says")


@nox.session
def live(session: nox.Session) -> None:
    """Serve the site and rebuild it at every change of a page, script or source."""
    python = book(session)
    # What a build writes must not start the next one.
    written = ["/docs/examples/", "/docs/tutorials/", "__pycache__", r"\.so$"]
    folders = ["csrc", "src/opbook", "examples_src", "tutorials"]
    run = f"{python} -m proof docs"
    options = ["-n", "-d", BUILD / "doctrees", "--pre-build", run]
    options += [part for pattern in written for part in ("--re-ignore", pattern)]
    options += [part for folder in folders for part in ("--watch", folder)]
    command = [python, "-m", "sphinx_autobuild", *options, *session.posargs]
    session.run(*command, "docs", HTML, external=True)


@nox.session
def new(session: nox.Session) -> None:
    """Copy the starter: ``-- ../mykernels --operator NAME``; or ``-- --here NAME``."""
    here = "--here" in session.posargs  # an operator of this repository
    script = "examples_src/sources/contribute/here.py" if here else "starter/new.py"
    session.run(sys.executable, script, *session.posargs, external=True)


@nox.session
def tests(session: nox.Session) -> None:
    """Run tests/, the gallery scripts, the notebooks and the pages under pytest."""
    python = book(session)
    session.run(python, "-m", "proof", "library", external=True)
    session.env["OPBOOK_NOX"] = sys.executable  # one test adds an operator by nox
    # A page's blocks share a process, so that a file goes to one worker as a whole.
    workers = ["--numprocesses=auto", "--maxprocesses=4", "--dist=loadfile"]
    workers += ["--durations=10"]
    # A check forks, which it cannot in a process where other tests have used CUDA.
    named = any(Path(each.partition("::")[0]).exists() for each in session.posargs)
    apart = shutil.which("nvidia-smi") and not named
    for part in (["tools/tests"], ["--deselect=tools/tests"]) if apart else ([],):
        command = [*workers, *session.posargs, *part]
        session.run(python, "-m", "pytest", *command, external=True)


@nox.session
def notebooks(session: nox.Session) -> None:
    """Run each page's notebook under nbval: [PAGE ...] [--shard I/N]."""
    python = book(session)
    session.run(python, "-m", "proof", "library", external=True)
    sphinx(session, python, HTML, *STRICT, "-t", "read")
    session.run(python, "tests/book/run_notebooks.py", *session.posargs, external=True)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure: nox -s bench -- docs, or -- kernels [NAME ...] beside eager."""
    name, *options = session.posargs or ["kernels"]
    script = ROOT / "benchmarks" / f"{name}.py"
    if not script.exists():
        names = ", ".join(sorted(path.stem for path in script.parent.glob("*.py")))
        session.error(f"no benchmark {name!r}: there are {names}")
    python = book(session)
    session.run(python, "-m", "proof", "library", external=True)
    # The docs benchmark builds copies of the repository with this nox.
    session.env["OPBOOK_NOX"] = sys.executable
    session.run(python, script, *options, external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Check the style of Python, C++, CUDA and prose; ``-- --fix`` mends some."""
    fix = "--fix" in session.posargs
    tools = Path(environment(session, "lint", "lint")).parent
    pages = own_files("*.md", "*.rst", "*.toml", "*.py", ".github/**/*.yml")
    cxx = own_files("*.h", "*.cpp", "*.cu")
    prose = [path for path in pages if path.endswith((".md", ".rst"))]
    commands = (
        ["ruff", "check", *["--fix"] * fix],
        ["ruff", "format", *["--check"] * (not fix)],
        ["clang-format", *(["-i"] if fix else ["--dry-run", "-Werror"]), *cxx],
        ["codespell", *["--write-changes"] * fix, *pages, *cxx],
        ["sphinx-lint", "--enable=all", "--disable=line-too-long", *prose],
    )
    failed = []
    for name, *options in commands:
        session.log(name)  # and not hundreds of file names, as `session.run` does
        if subprocess.run([tools / name, *options], check=False).returncode:
            failed.append(name)
    if failed:
        names = ", ".join(dict.fromkeys(failed))
        session.error(f"{names} found something: see above; `-- --fix` mends some")


@nox.session
def browser(session: nox.Session) -> None:
    """Test the built site in Chromium: contrast, search, keyboard, phone."""
    python = environment(session, "browser", "browser")
    options = ["-c", "tests/browser/pytest.ini", "tests/browser", *session.posargs]
    session.run(python, "-m", "pytest", *options, external=True)


@nox.session
def links(session: nox.Session) -> None:
    """Ask every address that the site links to (needs the network)."""
    python = environment(session, "read", "read")
    out = BUILD / "links"
    sphinx(session, python, out, "-t", "read", "-b", "linkcheck", *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """Break the sources in every way of tests/faults: does a test notice?"""
    python = book(session)
    session.run(python, "tests/mutants.py", *session.posargs, external=True)


# How the sessions work --------------------------------------------------------------


def book(session: nox.Session) -> str:
    """Prepare the environment that builds and tests the book; return its Python."""
    if hide := os.environ.get("OPBOOK_HIDE", "").split():
        session.log(f"Hiding {', '.join(hide)} (OPBOOK_HIDE)")
        os.environ |= toolchain().hidden(hide, BUILD / "hidden", os.environ)
        os.environ.pop("OPBOOK_HIDE")
    require_compiler(session)
    # An environment of the reader's own is taken as it is, with its torch.
    python = os.environ.get("OPBOOK_PYTHON") or environment(
        session, "book", "torch", "build", "docs", "test"
    )
    tools = ROOT / Path(python).parent  # absolute: programs warn of relative ones
    session.env["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
    session.env["VIRTUAL_ENV"] = str(Path(python).parent.parent)
    session.env["PYTHONPATH"] = str(ROOT / "docs" / "_ext")
    return python


def environment(session: nox.Session, name: str, *groups: str) -> str:
    """Make or reuse the environment .nox/NAME with these dependency groups.

    pip runs only when the list of requirements or this Python has changed.
    """
    folder = session.cache_dir.parent / name
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    requirements = nox.project.dependency_groups(pyproject(), *groups)
    wanted = "\n".join([sys.version, *requirements])
    digest = hashlib.sha256(wanted.encode()).hexdigest()
    stamp = folder / "requirements.sha256"
    if stamp.exists() and stamp.read_text() == digest:
        return str(python)
    session.log(f"Installing {len(requirements)} requirements into {folder}")
    stamp.unlink(missing_ok=True)
    session.run(
        sys.executable, "-m", "virtualenv", "--quiet", "--clear", folder, external=True
    )
    # pip's progress is for a terminal: in a log it is hundreds of lines.
    quiet = [] if sys.stdout.isatty() else ["--quiet"]
    session.run(python, "-m", "pip", "install", *quiet, *requirements, external=True)
    stamp.write_text(digest)
    return str(python)


def sphinx(session: nox.Session, python: str, out: Path, *options: str) -> None:
    """Run sphinx-build; what it warns of comes again as the last lines, to be seen.

    The doctrees lie beside the output, so that they match it.
    """
    doctrees = out.parent / "doctrees" if out.name == "html" else out / "doctrees"
    found = BUILD / "warnings.txt"
    arguments = ["-d", doctrees, "-w", found, *options, "docs", out]
    found.unlink(missing_ok=True)
    if not succeeds(session, python, "-m", "sphinx", *arguments):
        lines = found.read_text(encoding="utf-8") if found.exists() else ""
        named = re.findall(r"^.*\b(?:WARNING|ERROR|\w+Error): .*$", lines, re.MULTILINE)
        session.error("\n  ".join(["see above:", *dict.fromkeys(named)]))


def require_compiler(session: nox.Session) -> None:
    """Stop with the remedy when the library cannot be built on this machine."""
    # nox itself may run under an older one.
    if sys.version_info < (3, 11):  # noqa: UP036
        session.error(
            "Opbook needs Python 3.11 or newer, and this nox runs under "
            f"{sys.version_info.major}.{sys.version_info.minor}: install nox under a "
            "newer Python and run it with `python3.11 -m nox`."
        )
    if not toolchain().find("c++"):
        session.error(
            "No C++ compiler found: install one (Debian, Ubuntu: `apt install g++`; "
            "Fedora: `dnf install gcc-c++`; macOS: `xcode-select --install`)."
        )
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        session.error(
            "Python.h not found: install the headers of this Python "
            "(Debian, Ubuntu: `apt install python3-dev`; Fedora: `dnf install "
            "python3-devel`)."
        )


@functools.cache
def toolchain() -> ModuleType:
    """What knows where compilers are; its package would import torch."""
    path = ROOT / "src" / "opbook" / "toolchain.py"
    spec = importlib.util.spec_from_file_location("toolchain", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def pyproject() -> dict:
    """The project's metadata, where every version is pinned."""
    return nox.project.load_toml(ROOT / "pyproject.toml")


def own_files(*patterns: str) -> list[str]:
    """The repository's files that match one of the patterns, and new ones."""
    sys.path.insert(0, str(ROOT / "docs/_ext"))
    from proof.files import tracked

    names = map(PurePosixPath, tracked(new=True))
    return [str(name) for name in names if any(map(name.match, patterns))]


def find_page(session: nox.Session, name: str) -> str:
    """Find the one source whose path contains NAME; return its page on the site."""
    folders = {"docs": "", "examples_src": "examples/", "tutorials": "tutorials/"}
    pages = {}
    for folder, prefix in folders.items():
        made = {ROOT / "docs" / made for made in ("examples", "tutorials")}
        for path in (ROOT / folder).rglob("*"):
            source = path.suffix in {".md", ".py", ".ipynb"} and path.name != "conf.py"
            no_page = {"_ext", "sources"} & {*path.parts} or made & {*path.parents}
            if source and not no_page:
                inside = path.relative_to(ROOT / folder).with_suffix("")
                pages[path.relative_to(ROOT).as_posix()] = prefix + inside.as_posix()
    exact = [
        page
        for path, page in pages.items()
        if name in (page, path, path.rpartition(".")[0])
    ]
    found = exact or [page for path, page in pages.items() if name in path]
    if len(found) != 1:
        what = "fits several pages" if found else "fits no page; the nearest are"
        near = found or difflib.get_close_matches(name, pages.values(), cutoff=0)
        session.error(f"{name!r} {what}: {', '.join(sorted(near))}")
    return found[0]


def succeeds(session: nox.Session, *command: str | Path) -> bool:
    """Run a command; return whether it ended well, so that others can follow."""
    try:
        session.run(*command, external=True)
    except nox.command.CommandFailed:
        return False
    return True


def is_page(argument: str) -> bool:
    """Whether an argument names a page, not an option, its value, or a record."""
    return not argument.startswith("-") and not re.match(r"\d+/\d+$|\w+:", argument)


def announce(path: Path) -> None:
    """Print where the result lies, after nox's own last line."""
    target = path / "index.html" if path.is_dir() else path
    atexit.register(print, target.relative_to(ROOT).as_posix(), flush=True)

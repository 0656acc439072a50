"""Records of what was compiled and run, each with the digests of what it proves."""

import atexit
import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType

from . import digest

# Of how this engine runs, compiles and digests. A higher number outdates all records.
ENGINE = "2"
ROOT = Path(__file__).resolve().parents[3]
EVIDENCE = ROOT / "build" / "proof"
# Where pages run that have a project of their own (see projects.py).
PROJECTS = ROOT / "build" / "projects"
# Where setuptools puts objects, so that builds share them (see build.py).
BUILD_CONFIG = EVIDENCE / "build_ext.cfg"

# As `toolchain.find` knows them: "c++" is what CXX says, "clang" may be ROCm's.
COMPILERS = ("c++", "g++", "nvcc", "clang", "hipcc")
# Those that a record names only if its run asked for them. "clang" needs HIP's files.
OPTIONAL = {"nvcc": ("nvcc",), "clang": ("clang", "hip"), "hipcc": ("hipcc",)}

# Generated or private: never the source of anything that a page shows.
_NOT_SOURCES = re.compile(
    r"(^|/)(\.|__pycache__|site-packages|[^/]*\.egg-info)|^build(/|$)"
    r"|^docs/(examples|tutorials|jupyter_execute)(/|$)"
)


def relative(path: str | Path) -> str | None:
    """Name a file of the repository by its path from the root.

    Returns:
        None for anything outside the repository and for generated files. A copy of a
        file has the name of its original (see `original_of`).
    """
    try:
        name = Path(os.path.abspath(path)).relative_to(ROOT).as_posix()
    except ValueError:
        return None
    if name.startswith("build/projects/"):
        return original_of(path)[0]
    return None if _NOT_SOURCES.search(name) else name


def original_of(path: str | Path) -> tuple[str | None, list[int]]:
    """The file that was copied into a page's project, and which of its lines.

    Returns:
        None and no lines for a file that is no copy, or that the page has edited.
    """
    page, *parts = Path(os.path.abspath(path)).relative_to(PROJECTS).parts
    copies = read_json(PROJECTS / f"{page}.json", {})
    name, known, lines = copies.get("/".join(parts), (None, "", []))
    return (name, lines) if name and sha256(path) == known else (None, [])


def load(path: Path) -> ModuleType:
    """Load a module by its path: importing its package would import torch."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


toolchain = load(ROOT / "src" / "opbook" / "toolchain.py")


@cache
def _digests(path: str, mtime: int, size: int) -> tuple[str, str]:
    """Digests of the bytes and of the meaning of a file."""
    data = Path(path).read_bytes()
    of_bytes = digest.of_bytes(data)
    meanings = _meanings()
    if of_bytes not in meanings:
        meanings[of_bytes] = digest.of_meaning(data, Path(path).suffix)
    return of_bytes, meanings[of_bytes]


@cache
def _meanings() -> dict[str, str]:
    """Digests of meanings by those of bytes, kept: to parse all sources takes a second.

    The file goes with the engine's number, as what it holds does.
    """
    file = EVIDENCE / f"meanings-{ENGINE}.json"
    known = read_json(file, {})
    before = len(known)
    atexit.register(lambda: len(known) > before and write_json(file, known))
    return known


_seen: dict[tuple[str | Path, bool], str] | None = None  # while nothing changes


@contextlib.contextmanager
def at_rest() -> Iterator[None]:
    """Look at each file once meanwhile: many records depend on the same ones."""
    global _seen
    _seen = {}
    try:
        yield
    finally:
        _seen = None


def sha256(path: str | Path, meaning: bool = False) -> str:
    """Digest a file and, by its names, a folder; "" if it is missing.

    Args:
        path: from the root of the repository.
        meaning: whether comments and layout of code are left out.
    """
    if _seen is None:
        return _sha256(path, meaning)
    if (path, meaning) not in _seen:
        _seen[path, meaning] = _sha256(path, meaning)
    return _seen[path, meaning]


def _sha256(path: str | Path, meaning: bool) -> str:
    path = Path(ROOT, path)
    try:
        if path.is_dir():
            names = sorted(p.name for p in path.iterdir() if relative(p))
            return digest.of_bytes("\n".join(names).encode())
        status = path.stat()
        return _digests(str(path), status.st_mtime_ns, status.st_size)[meaning]
    except OSError:
        return ""


def statements(name: str) -> list[tuple[int, int]]:
    """First and last line of each statement of a Python file of the repository."""
    return digest.statements((ROOT / name).read_bytes())


def is_unchanged(path: str | Path, known: str) -> bool:
    """Whether a file is what it was when `digests` gave this digest of it."""
    return bool(known) and sha256(path, known.startswith("code:")) == known


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all, for a build may be interrupted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def write_json(path: Path, data: object) -> None:
    """Write data whole or not at all."""
    write_text(path, json.dumps(data, indent=1) + "\n")


def read_json(path: Path, default: object) -> object:
    """Read a file that `write_json` wrote; anything unreadable counts as absent."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return default


def package_version(name: str) -> str:
    """The version of an installed package, "" of any other name."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _tool_version(name: str) -> str:
    """Ask a compiler for its version once; the answer holds while its file does."""
    path = toolchain.find(name)
    if not path:
        return ""
    status = os.stat(path)
    key = f"{path} {status.st_mtime_ns} {status.st_size}"
    known = read_json(EVIDENCE / "tools.json", {})
    if key not in known:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, check=False
        ).stdout
        lines = [line for line in answer.splitlines() if re.search(r"\d+\.\d+", line)]
        known[key] = lines[0] if lines else answer.strip()
        write_json(EVIDENCE / "tools.json", known)
    return known[key]


def _gpu() -> str:
    """Name the GPUs that this process may use, without loading a driver."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return ""
    cards = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    names = re.findall(r"Model:\s*(.+)", "\n".join(p.read_text() for p in cards))
    if not names and (smi := shutil.which("nvidia-smi")):
        query = [smi, "--query-gpu=name", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True, check=False)
        names = answer.stdout.splitlines() if answer.returncode == 0 else []
    for node in Path("/sys/class/kfd/kfd/topology/nodes").glob("*/properties"):
        names += re.findall(r"gfx_target_version ([1-9]\d*)", node.read_text())
    return ", ".join(names)


@cache
def environment() -> dict[str, str]:
    """Versions that can change what a run prints or what a compiler makes."""
    versions = {"python": platform.python_version(), "machine": platform.machine()}
    versions |= {name: package_version(name) for name in ("torch", "triton", "numpy")}
    versions |= {name: _tool_version(name) for name in COMPILERS}
    versions["hip"] = str(toolchain.hip_bitcode() or "")
    return versions | {"gpu": _gpu(), "engine": ENGINE}


def versions(tools: Iterable[str]) -> dict[str, str]:
    """The part of the environment that a run depends on which asked for these tools.

    Args:
        tools: as `toolchain.find` knows them, or the names of programs.
    """
    cuda = ("cuobjdump", "nvdisasm", "compute-sanitizer", "ncu")
    tools = {"nvcc" if tool in cuda else tool for tool in tools}
    tools = {"clang" if re.match("clang|llvm-", tool) else tool for tool in tools}
    unused = {key for tool in OPTIONAL.keys() - tools for key in OPTIONAL[tool]}
    return {key: said for key, said in environment().items() if key not in unused}


def fingerprint(paths: Iterable[str | Path]) -> str:
    """Name the state of files and folders together with the environment.

    For caches that see only the text they run, such as jupyter-cache.
    """
    state = hashlib.sha256(json.dumps(environment()).encode())
    for path in map(ROOT.joinpath, paths):
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and (name := relative(file)):
                state.update(f"{name} {sha256(file, meaning=True)}\n".encode())
    return state.hexdigest()[:12]


@dataclass
class Record:
    """One execution or compilation, and everything that it depended on.

    Attributes:
        kind: "ran", "compiled", or "not_run" when a tool was missing.
        what: the name of the record, such as "page:guide/2_interface".
        inputs: digest of each file of the repository that was read.
        targets: architectures that code was compiled for.
        environment: versions at that time, by the names of `environment`.
        statements: executed statements of Python files, by `digest.statements`.
        outputs: what each block printed.
        detail: the command, the reason, the date.
    """

    kind: str
    what: str
    inputs: dict[str, str] = field(default_factory=dict)
    targets: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=lambda: dict(environment()))
    statements: dict[str, list[int]] = field(default_factory=dict)
    outputs: list = field(default_factory=list)
    detail: dict = field(default_factory=dict)

    def current(self) -> bool:
        """Whether nothing that this record depends on has changed since."""
        same = self.environment.items() <= environment().items()
        return same and all(is_unchanged(*item) for item in self.inputs.items())


def digests(paths: Iterable[str | Path], text: Collection[str] = ()) -> dict[str, str]:
    """Digest the files of the repository among `paths`, for `Record.inputs`.

    Args:
        paths: files and folders.
        text: those that count by their bytes, because they were read as text.
    """
    names = sorted({name for path in paths if (name := relative(path))})
    return {n: known for n in names if (known := sha256(n, meaning=n not in text))}


def pinned(inputs: dict[str, str], printed: str) -> dict[str, str]:
    """The inputs; by its bytes each file of which the output names a line."""
    named = re.findall(r"([\w.-]+\.\w+)(?:\W{1,3}|\W+line )\d", printed)
    return {
        name: sha256(name) if Path(name).name in named else known
        for name, known in inputs.items()
    }


class Store:
    """The records, one JSON file each in build/proof/records."""

    def __init__(self) -> None:
        self.folder = EVIDENCE / "records"
        files = sorted(self.folder.glob("*.json"))
        loaded = [Record(**data) for f in files if (data := read_json(f, None))]
        self._records = {record.what: record for record in loaded}

    def _file(self, what: str) -> Path:
        return self.folder / (re.sub(r"[^\w.-]+", "-", what) + ".json")

    def names(self) -> list[str]:
        return list(self._records)

    def get(self, what: str) -> Record | None:
        """The record of that name if it is current."""
        record = self._records.get(what)
        return record if record and record.current() else None

    def save(self, record: Record) -> None:
        self._records[record.what] = record
        write_json(self._file(record.what), asdict(record))

    def drop(self, what: str) -> None:
        self._records.pop(what, None)
        self._file(what).unlink(missing_ok=True)

    def for_path(self, path: str | Path) -> list[Record]:
        """The current records that depend on a file."""
        name = relative(path)
        found = [r for r in self._records.values() if name in r.inputs]
        return [record for record in found if record.current()]


@cache
def store() -> Store:
    """The store of this process."""
    return Store()

"""Records of what was compiled and run, each with the digests of what it proves."""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
EVIDENCE = ROOT / "build" / "proof"
# Where setuptools puts objects, so that builds share them (see build.py).
BUILD_CONFIG = EVIDENCE / "build_ext.cfg"

# Generated or private: never the source of anything that a page shows.
_NOT_SOURCES = re.compile(
    r"(^|/)(\.|__pycache__|site-packages|[^/]*\.egg-info)|^build(/|$)"
    r"|^docs/(examples|tutorials|jupyter_execute)(/|$)"
)


def relative(path: str | Path) -> str | None:
    """Name a file of the repository by its path from the root.

    Returns:
        None for anything outside the repository and for generated files.
    """
    try:
        name = Path(os.path.abspath(path)).relative_to(ROOT).as_posix()
    except ValueError:
        return None
    return None if _NOT_SOURCES.search(name) else name


@cache
def _sha256(path: str, mtime: int, size: int) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def sha256(path: str | Path) -> str:
    """Digest a file by its content and a folder by its names; "" if it is missing."""
    path = Path(ROOT, path)
    try:
        if path.is_dir():
            names = sorted(p.name for p in path.iterdir() if relative(p))
            return hashlib.sha256("\n".join(names).encode()).hexdigest()
        status = path.stat()
        return _sha256(str(path), status.st_mtime_ns, status.st_size)
    except OSError:
        return ""


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


def _package_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _tool_version(name: str) -> str:
    """Ask a compiler for its version once; the answer holds while its file does."""
    path = shutil.which(name)
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
    versions |= {name: _package_version(name) for name in ("torch", "triton", "numpy")}
    versions |= {name: _tool_version(name) for name in ("g++", "nvcc", "clang-19")}
    return versions | {"gpu": _gpu()}


def fingerprint(paths: Iterable[str | Path]) -> str:
    """Name the state of files and folders together with the environment.

    For caches that see only the text they run, such as jupyter-cache.
    """
    digest = hashlib.sha256(json.dumps(environment()).encode())
    for path in map(ROOT.joinpath, paths):
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and (name := relative(file)):
                digest.update(f"{name} {sha256(file)}\n".encode())
    return digest.hexdigest()[:12]


@dataclass
class Record:
    """One execution or compilation, and everything that it depended on.

    Attributes:
        kind: "ran", "compiled", or "not_run" when a tool was missing.
        what: the name of the record, such as "page:guide/02_interface".
        inputs: digest of each file of the repository that was read.
        targets: architectures that code was compiled for.
        environment: versions at that time.
        lines: executed lines of Python files.
        outputs: what each block printed.
        detail: the command, the reason, the date.
    """

    kind: str
    what: str
    inputs: dict[str, str] = field(default_factory=dict)
    targets: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=lambda: dict(environment()))
    lines: dict[str, list[int]] = field(default_factory=dict)
    outputs: list = field(default_factory=list)
    detail: dict = field(default_factory=dict)

    def current(self) -> bool:
        """Whether nothing that this record depends on has changed since."""
        return self.environment == environment() and all(
            digest and sha256(name) == digest for name, digest in self.inputs.items()
        )


def digests(paths: Iterable[str | Path]) -> dict[str, str]:
    """Digest the files of the repository among `paths`, for `Record.inputs`."""
    names = sorted({name for path in paths if (name := relative(path))})
    return {name: digest for name in names if (digest := sha256(name))}


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

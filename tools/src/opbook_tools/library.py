"""``opbook doctor LIBRARY``: whether a compiled extension fits this machine.

Nothing of the library runs. Its tables are read with pyelftools, and compared with the
tables of the PyTorch, the Python and the system libraries that would load it.
"""

from __future__ import annotations

import functools
import importlib.machinery
import io
import os
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
from elftools.elf.hash import ELFHashSection, GNUHashSection

from opbook_tools.doctor import (
    Finding,
    Machine,
    content,
    library_targets,
    ok,
    problem,
    runs_on,
    short,
    toolchain,
    warning,
)

SYSTEM = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
FUNCTIONS = "include/torch/csrc/stable/c/shim.h"  # says since when each is there
MANY = "build it against the stable ABI, and it serves this torch and later ones"
PIE = 0x08000000  # DF_1_PIE


class Unreadable(Exception):
    """There is no shared library for Linux at this path."""


class Elf:
    """What the tables of a library say."""

    def __init__(self, path: Path) -> None:
        try:
            self.file = ELFFile(io.BytesIO(content(path)))
        except (OSError, ELFError) as error:
            why = getattr(error, "strerror", None) or f"not an ELF file: {error}"
            raise Unreadable(f"{path}: {why}") from error
        self.path = path
        try:
            segments, _ = [*self.file.iter_segments()], [*self.sections()]
        except (ELFError, ValueError, OverflowError) as error:
            raise Unreadable(f"{path}: a damaged ELF file: {error}") from error
        if path.stat().st_size < max(s["p_offset"] + s["p_filesz"] for s in segments):
            raise Unreadable(f"{path}: a damaged ELF file: its end is missing")
        tables = [s for s in segments if isinstance(s, DynamicSegment)]
        if not tables:
            raise Unreadable(f"{path}: an ELF file, and no shared library")
        self.dynamic = tables[0]

    @property
    def is_program(self) -> bool:
        """Whether it is for the system to start, and not for a process to load."""
        flags = self.dynamic.iter_tags("DT_FLAGS_1")
        return self.file["e_type"] == "ET_EXEC" or any(f["d_val"] & PIE for f in flags)

    def tags(self, kind: str, attribute: str) -> list[str]:
        """The strings of one kind of entry."""
        return [getattr(t, attribute) for t in self.dynamic.iter_tags(f"DT_{kind}")]

    @functools.cached_property
    def needed(self) -> list[str]:
        """The libraries that it asks for."""
        return self.tags("NEEDED", "needed")

    @functools.cached_property
    def search_path(self) -> list[str]:
        """Where it wants these to be looked for."""
        entries = self.tags("RUNPATH", "runpath") or self.tags("RPATH", "rpath")
        return [folder for entry in entries for folder in entry.split(":")]

    def symbols(self, defined: bool) -> list[str]:
        """Global symbols that it has, or that others must have."""
        return [
            symbol.name
            for symbol in self.dynamic.iter_symbols()
            if symbol["st_info"]["bind"] == "STB_GLOBAL"
            and symbol.name
            and (symbol["st_shndx"] != "SHN_UNDEF") is defined
        ]

    @functools.cached_property
    def _hash(self) -> GNUHashSection | ELFHashSection | None:
        tables = (GNUHashSection, ELFHashSection)
        return next((s for s in self.sections() if isinstance(s, tables)), None)

    @functools.cached_property
    def _defined(self) -> set[str]:
        return {
            s.name for s in self.dynamic.iter_symbols() if s["st_shndx"] != "SHN_UNDEF"
        }

    def has(self, name: str) -> bool:
        """Whether it defines a symbol."""
        if self._hash is None:
            return name in self._defined
        found = self._hash.get_symbol(name)
        return found is not None and found["st_shndx"] != "SHN_UNDEF"

    def sections(self) -> Iterator:
        """The sections, if they are there."""
        return self.file.iter_sections()

    def versions_needed(self) -> Iterator[tuple[str, str]]:
        """The versions that it asks for, each with the library that must have it."""
        for section in self.sections():
            if isinstance(section, GNUVerNeedSection):
                for library, versions in section.iter_versions():
                    yield from ((library.name, version.name) for version in versions)

    def versions(self) -> set[str]:
        """The versions that it has."""
        return {
            next(names).name
            for section in self.sections()
            if isinstance(section, GNUVerDefSection)
            for _, names in section.iter_versions()
        }


def inspect(path: Path, machine: Machine) -> list[Finding]:
    """Compare a library with what would load it here.

    Raises:
        Unreadable: It is no shared library for Linux.
    """
    elf = Elf(path)
    if elf.is_program:
        raise Unreadable(f"{path}: a program, and no shared library")
    made_for = {"x64": "x86_64", "AArch64": "aarch64"}
    kind = made_for.get(elf.file.get_machine_arch(), elf.file.get_machine_arch())
    if kind != platform.machine():
        text = f"{short(path)} is for {kind}, and this machine is {platform.machine()}"
        return [problem(text, "build it for this machine")]
    beside = Surroundings(elf, machine)
    return [
        *check_python(elf),
        *check_search_path(elf),
        *check_needed(beside),
        *check_versions(beside),
        *check_symbols(beside),
        *check_stable_abi(beside),
        *check_gpus(elf, machine),
    ]


class Surroundings:
    """The libraries that are in memory with a library, or that it asks for."""

    def __init__(self, elf: Elf, machine: Machine) -> None:
        self.elf, self.machine = elf, machine
        self.found: dict[str, Elf] = {}
        self.missing: dict[str, str] = {}
        self._add_needs_of(elf)

    def _add_needs_of(self, elf: Elf) -> None:
        for name in elf.needed:
            if name in self.found or name in self.missing:
                continue
            path = self._find(name, elf)
            if path is None:
                self.missing[name] = f"{elf.path.name} needs {name}, which is not here"
                continue
            try:
                self.found[name] = Elf(path)
            except Unreadable as error:
                self.missing[name] = f"{elf.path.name} needs {error}"
                continue
            self._add_needs_of(self.found[name])

    def _find(self, name: str, elf: Elf) -> Path | None:
        """Where the loader finds it, after `import torch`."""
        here = str(elf.path.resolve().parent)
        own = [re.sub(r"\$\{?ORIGIN\}?", here, entry) for entry in elf.search_path]
        variable = self.machine.environment.get("LD_LIBRARY_PATH", "").split(":")
        first = [Path(f, name) for f in (*self.of_torch, *own, *variable) if f]
        known = [_cached()[name]] if name in _cached() else []
        last = [Path(f, name) for f in SYSTEM]
        return next(filter(Path.is_file, [*first, *known, *last]), None)

    @functools.cached_property
    def of_torch(self) -> list[Path]:
        """The folder of PyTorch's libraries, if it is installed."""
        folder = self.machine.torch_folder
        return [folder / "lib"] if folder else []

    @functools.cached_property
    def python(self) -> list[Elf]:
        """The program that is Python, and its library."""
        names = Path(sysconfig.get_config_var("LIBDIR") or "/nowhere")
        shared = names / (sysconfig.get_config_var("LDLIBRARY") or "")
        places = [Path(sys.executable).resolve(), shared]
        return [Elf(p) for p in places if p.is_file() and p.suffix != ".a"]

    def is_of_torch(self, elf: Elf) -> bool:
        """Whether PyTorch brings this library."""
        return elf.path.parent in self.of_torch

    @functools.cached_property
    def provider(self) -> dict[str, Elf | None]:
        """For each undefined symbol the library that has it; None for none."""
        # Last torch's libraries, which have copies of some of the system's symbols.
        libraries = [*sorted(self.found.values(), key=self.is_of_torch), *self.python]
        return {
            name: next((each for each in libraries if each.has(name)), None)
            for name in self.elf.symbols(defined=False)
        }

    @functools.cached_property
    def from_torch(self) -> list[str]:
        """The symbols that PyTorch has."""
        pairs = self.provider.items()
        return [name for name, elf in pairs if elf and self.is_of_torch(elf)]


@functools.cache
def _cached() -> dict[str, Path]:
    """The libraries of the system by name, as its loader knows them."""
    try:
        command = ["/sbin/ldconfig", "-p"]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return {}
    pairs = re.findall(r"^\s*(\S+) \(.*?\) => (.+)$", said.stdout, re.MULTILINE)
    return {name: Path(path) for name, path in reversed(pairs)}


# The checks, in the order of the screen.


def check_python(elf: Elf) -> Iterator[Finding]:
    """Whether it is a module that this Python imports."""
    names = elf.symbols(defined=True)
    modules = [n.removeprefix("PyInit_") for n in names if n.startswith("PyInit_")]
    stem, _, ending = elf.path.name.partition(".")
    if not modules:
        text = "no Python module: torch.ops.load_library loads it"
        yield ok(f"{short(elf.path)}: {text}")
    elif f".{ending}" not in importlib.machinery.EXTENSION_SUFFIXES:
        loads = ", ".join(importlib.machinery.EXTENSION_SUFFIXES)
        text = f"{short(elf.path)} is for another Python: this one loads {loads}"
        yield problem(text, "build it with this Python")
    elif stem not in modules:
        text = f"{short(elf.path)} has PyInit_{modules[0]}, and no PyInit_{stem}"
        yield problem(text, f"name the file {modules[0]}.{ending}")
    else:
        whose = "any Python 3 from the one it was built for on"
        whose = whose if ending.startswith("abi3") else "this Python alone"
        yield ok(f"{short(elf.path)}: a Python module, for {whose}")


def check_search_path(elf: Elf) -> Iterator[Finding]:
    """Whether libraries are looked for in folders of another machine, or of anybody."""
    for entry in elf.search_path:
        if entry.startswith(("$ORIGIN", "${ORIGIN}")):
            yield ok(f"search path: {entry}")
        elif entry.startswith("/"):
            yield warning(
                f"search path: {entry} is a folder of the machine that built it",
                "link without -rpath, or with one that begins with $ORIGIN",
            )
        else:
            yield problem(
                f"search path: {entry or 'an empty entry'} is looked for in the "
                "current folder, where somebody else may have put a library",
                "link without -rpath, or with one that begins with $ORIGIN",
            )


def check_needed(beside: Surroundings) -> Iterator[Finding]:
    """Whether the libraries that it asks for are here."""
    for name, text in beside.missing.items():
        remedy = "install it, or put its folder into LD_LIBRARY_PATH"
        if name.startswith(("libtorch", "libc10")):
            remedy = (
                "build it with the torch that is here, or install torch for its GPU"
            )
        yield problem(text, remedy)


def check_versions(beside: Surroundings) -> Iterator[Finding]:
    """Whether the system's libraries are as new as those it was linked with."""
    for name, version in beside.elf.versions_needed():
        library = beside.found.get(name)
        has = library.versions() if library else set()
        if has and version not in has:
            yield problem(
                f"it needs {version}, which {library.path} does not have",
                "build it on a system as old as the oldest that has to load it, such "
                "as a manylinux image",
            )


def check_symbols(beside: Surroundings) -> Iterator[Finding]:
    """Whether all that it leaves undefined is here."""
    lost = [name for name, elf in beside.provider.items() if elf is None]
    if not beside.of_torch:
        text = "torch is not installed: symbols cannot be compared"
        yield warning(text, "run the doctor with the Python that has torch")
        return
    unlinked = [name for name in lost if _in_torch(beside, name)]
    torch = f"torch {beside.machine.torch_build.get('version', '')}"
    if unlinked:
        yield problem(
            f"undefined symbol {_readable(unlinked)}: {torch} has it, and the library "
            "does not ask for libtorch_cpu.so or libc10.so",
            "link with -ltorch_cpu -lc10, as torch.utils.cpp_extension does",
        )
    others = [name for name in lost if name not in unlinked]
    if others and beside.missing:
        text = f"{len(others)} undefined symbols may be in the libraries that lack"
        yield warning(text, "see above")
    elif others:
        yield problem(
            f"undefined symbol {_readable(others)}: neither {torch} nor Python nor a "
            "library that it asks for has it",
            "if it is a function of yours, add its source to the build; if it is of "
            "torch, build the library again with the torch that is here",
        )
    elif not lost:
        libraries = len(beside.found)
        text = f"{len(beside.provider)} undefined symbols, all in {torch}, Python or "
        yield ok(f"{text}the {libraries} libraries that are loaded with it")


def _in_torch(beside: Surroundings, name: str) -> bool:
    return any(elf.has(name) for elf in _libraries_of(beside.of_torch[0]))


@functools.cache
def _libraries_of(folder: Path) -> list[Elf]:
    return [Elf(path) for path in sorted(folder.glob("lib*torch*.so"))] + [
        Elf(path) for path in sorted(folder.glob("libc10*.so"))
    ]


def check_stable_abi(beside: Surroundings) -> Iterator[Finding]:
    """Whether it depends on torch's C++, which changes with each version."""
    used = beside.from_torch
    if not used:
        yield ok("it uses nothing of torch")
        return
    unstable = [name for name in used if name.startswith("_Z")]
    if unstable:
        version = ".".join(map(str, beside.machine.torch_version))
        yield warning(
            f"not the stable ABI: {len(unstable)} C++ symbols of torch, such as "
            f"{_readable(unstable[:1])}; it may load with torch {version} alone",
            MANY,
        )
        return
    since = _since(beside, used)
    text = f"stable ABI: {len(used)} symbols of torch, all of its C interface"
    yield ok(f"{text}{f'; it needs torch {since} or later' if since else ''}")


def _since(beside: Surroundings, used: list[str]) -> str:
    """The oldest torch with all these functions, as the headers here tell."""
    header = beside.machine.torch_folder / FUNCTIONS
    if not header.is_file():
        return ""
    guard = r"#if TORCH_FEATURE_VERSION >= TORCH_VERSION_(\d+)_(\d+)_0(.*?)#endif"
    known = re.findall(guard, header.read_text(), re.DOTALL)
    found = [
        (int(major), int(minor))
        for major, minor, text in known
        if {*re.findall(r"\w+", text)} & {*used}
    ]
    return ".".join(map(str, max(found))) if found else ""


def check_gpus(elf: Elf, machine: Machine) -> Iterator[Finding]:
    """For which GPUs it has code, and whether one of these is here."""
    targets = library_targets(machine, elf.path)
    holds = ", ".join(targets) or "no GPU"
    yield ok(f"it holds code for {holds}")
    for name, arch in machine.torch_says.get("gpus", []) if targets else ():
        if not runs_on(targets, arch):
            text = f"it has no code for {name} ({arch})"
            yield problem(text, f"build it again for {arch}")


def _readable(names: list[str]) -> str:
    """The first of some symbols as C++ writes it, and how many more there are."""
    first = names[0]
    if tool := toolchain.find("c++filt", os.environ):
        first = Machine().output(tool, first)[1].strip() or first
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{first}{more}"

"""Where the compilers are: the one place that looks them up, and that can hide them.

It imports Python's own modules alone, so that setup.py, noxfile.py, the doctor and the
book can load it by its path, before the package is built.

``CUDA_HOME`` and ``ROCM_HOME`` decide where they are set, as in PyTorch: a folder
without a compiler means that there is none.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

# 19 is the first clang that compiles for gfx942.
CLANGS = ("clang++-19", *(f"clang++-{number}" for number in range(20, 30)), "clang++")
# What `hidden` takes away under each name: programs, and variables that lead to them.
_PROGRAMS = {
    "nvcc": ("nvcc", "ptxas", "cicc", "cudafe++", "fatbinary", "nvlink"),
    "clang": ("clang", "clang++", "clang-[0-9]*", "clang++-[0-9]*", "amdclang*")
    + ("hipcc", "ld.lld*", "lld*", "llvm-*"),
}
_CUDA, _ROCM = ("CUDA_HOME", "CUDA_PATH"), ("ROCM_HOME", "ROCM_PATH")
_VARIABLES = {"nvcc": _CUDA, "clang": _ROCM}
_CHOSEN_BY = {"nvcc": _CUDA, "hipcc": _ROCM}


def find(name: str, environment: Mapping[str, str] | None = None) -> str | None:
    """The path of a tool.

    Args:
        name: ``"c++"`` and ``"clang"`` stand for any C++ compiler and for any clang
            that can compile for AMD GPUs; ``"hipcc"`` and the programs of the CUDA
            toolkit are looked for in their toolkits; other names on ``PATH``.
        environment: The environment variables; those of this process when left out.

    Returns:
        None where the tool is missing.
    """
    environment = os.environ if environment is None else environment
    if name == "c++":
        chosen = environment.get("CXX", "c++").split()[:1]
        return _first([*chosen, "g++", "clang++"], environment)
    if name == "clang":
        return _clang(environment)
    if name == "hipcc":
        return _in_toolkit(name, rocm_home(environment), environment)
    if name in ("nvcc", "cuobjdump", "nvdisasm", "compute-sanitizer", "ncu"):
        return _in_toolkit(name, cuda_home(environment), environment)
    return which(name, environment)


def which(name: str, environment: Mapping[str, str]) -> str | None:
    """Finds a program on ``PATH``, as a shell would."""
    return shutil.which(name, path=environment.get("PATH", ""))


def cuda_home(environment: Mapping[str, str] | None = None) -> Path | None:
    """The root of the CUDA toolkit; None where there is no nvcc.

    An nvcc on ``PATH`` may be a link or a script that lies elsewhere, so it is asked.
    """
    environment = os.environ if environment is None else environment
    chosen = environment.get("CUDA_HOME") or environment.get("CUDA_PATH")
    if chosen:
        roots = [Path(chosen)]
    else:
        nvcc = which("nvcc", environment)
        roots = [*([_root_of(nvcc)] if nvcc else []), Path("/usr/local/cuda")]
    return next((root for root in roots if shutil.which(root / "bin/nvcc")), None)


@functools.cache
def _root_of(nvcc: str) -> Path:
    """What nvcc itself says of its root: ``#$ TOP=/usr/local/cuda-13.0/bin/..``."""
    command = [nvcc, "--dryrun", "-x", "cu", "-c", os.devnull, "-o", os.devnull]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return Path(nvcc).parents[1]
    top = re.search(r"^#\$ TOP=(.+)$", said.stderr, re.MULTILINE)
    return Path(os.path.normpath(top[1])) if top else Path(nvcc).resolve().parents[1]


def rocm_home(environment: Mapping[str, str] | None = None) -> Path:
    """The folder where ROCm is, or would be."""
    environment = os.environ if environment is None else environment
    chosen = environment.get("ROCM_HOME") or environment.get("ROCM_PATH")
    return Path(chosen or "/opt/rocm")


def _in_toolkit(
    name: str, home: Path | None, environment: Mapping[str, str]
) -> str | None:
    inside = shutil.which(home / "bin" / name) if home else None
    # The compiler of a toolkit that a variable names is in there or nowhere.
    is_chosen = any(map(environment.get, _CHOSEN_BY.get(name, ())))
    return inside or (None if is_chosen else which(name, environment))


def _clang(environment: Mapping[str, str]) -> str | None:
    """ROCm's own, or one of a distribution."""
    rocm = rocm_home(environment)
    own = (rocm / folder / "clang++" for folder in ("lib/llvm/bin", "llvm/bin"))
    found = next((str(path) for path in own if path.is_file()), None)
    return found or _first(CLANGS, environment)


def _first(names: Iterable[str], environment: Mapping[str, str]) -> str | None:
    found = (which(name, environment) for name in names)
    return next(filter(None, found), None)


def hidden(
    names: Iterable[str], folder: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a machine without some tools, to see what works there.

    A folder of ``PATH`` that holds such a tool is replaced by one of links to all the
    other programs in it. The toolkits' variables lead to a folder that does not exist,
    so that nothing looks for them in the usual places.

    Args:
        names: ``"nvcc"``, ``"clang"`` (hipcc and LLVM's tools go with it), or both.
        folder: Where the links are made.
        environment: The environment as it is.

    Raises:
        ValueError: For another name.
    """
    if unknown := {*names} - _PROGRAMS.keys():
        known = " and ".join(_PROGRAMS)
        raise ValueError(f"can hide {known}, but not {', '.join(sorted(unknown))}")
    patterns = [pattern for name in names for pattern in _PROGRAMS[name]]
    places = []
    for number, place in enumerate(environment["PATH"].split(os.pathsep)):
        programs = sorted(os.listdir(place)) if os.path.isdir(place) else []
        kept = [p for p in programs if not any(fnmatch.fnmatch(p, g) for g in patterns)]
        if len(kept) < len(programs):
            links = Path(folder, str(number))
            shutil.rmtree(links, ignore_errors=True)
            links.mkdir(parents=True)
            for program in kept:
                (links / program).symlink_to(Path(place, program))
            place = str(links)
        places.append(place)
    nowhere = {v: str(Path(folder, "none")) for n in names for v in _VARIABLES[n]}
    return {**environment, "PATH": os.pathsep.join(places), **nowhere}

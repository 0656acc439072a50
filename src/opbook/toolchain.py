"""Where the compilers are: the one place that looks them up, and that can hide them.

It also knows what a build needs of them, so that setup.py, the doctor and the error of
an operator without a GPU kernel say the same. It imports Python's own modules alone:
setup.py, noxfile.py, the doctor and the book can load it by its path, before the
package is built.

``CUDA_HOME`` and ``ROCM_HOME`` decide where they are set, as in PyTorch: a folder
without a compiler means that there is none.
"""

from __future__ import annotations

import fnmatch
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

# The oldest versions that can build the library; pyproject.toml asks pip for the same.
LEAST = {"torch": "2.11", "setuptools": "77.0.3"}
REBUILD = "python -m pip install --no-build-isolation --no-deps -e ."
# What GPU kernels are for where no GPU is visible, and the first nvcc that knows all.
ARCHITECTURES = ("8.0", "9.0", "10.0")
NVCC_FOR_ALL = "12.8"
# 19 is the first clang that compiles for gfx942.
CLANGS = ("clang++-19", *(f"clang++-{number}" for number in range(20, 30)), "clang++")
_DEMANGLERS = ("c++filt", "llvm-cxxfilt", "llvm-cxxfilt-19")
_OF_CUDA = ("nvcc", "cuobjdump", "nvdisasm", "compute-sanitizer", "ncu")
# What `hidden` takes away under each name: programs, and variables that lead to them.
_PROGRAMS = {
    "nvcc": "nvcc ptxas cicc cudafe++ fatbinary nvlink".split(),
    "clang": "clang clang++ clang-[0-9]* clang++-[0-9]* amdclang* hipcc".split()
    + "ld.lld* lld* llvm-*".split(),
}
_CUDA, _ROCM = ("CUDA_HOME", "CUDA_PATH"), ("ROCM_HOME", "ROCM_PATH")
_VARIABLES = {"nvcc": _CUDA, "clang": _ROCM}
_CHOSEN_BY = {"nvcc": _CUDA, "hipcc": _ROCM}


def find(name: str, environment: Mapping[str, str] | None = None) -> str | None:
    """The path of a tool.

    Args:
        name: ``"c++"`` stands for the compiler that PyTorch builds with, which is
            ``CXX`` where that is set; ``"clang"`` for any that can compile for AMD
            GPUs; ``"c++filt"`` for LLVM's too. ``"hipcc"`` and the programs of the
            CUDA toolkit are looked for in their toolkits; other names on ``PATH``.
        environment: The environment variables; those of this process when left out.

    Returns:
        None where the tool is missing.
    """
    sys.audit("opbook.find", name)  # what asks depends on the answer
    environment = os.environ if environment is None else environment
    if name == "c++":
        chosen = (environment.get("CXX") or "c++").split()
        return _first(chosen[:1], environment)
    if name == "clang":
        return _clang(environment)
    if name == "c++filt":
        return _first(_DEMANGLERS, environment)
    if name == "hipcc":
        return _in_toolkit(name, rocm_home(environment), environment)
    if name in _OF_CUDA:
        return _in_toolkit(name, cuda_home(environment), environment)
    return which(name, environment)


def which(name: str, environment: Mapping[str, str]) -> str | None:
    """Finds a program on ``PATH``, as a shell would."""
    return shutil.which(name, path=environment.get("PATH", ""))


def cuda_home(environment: Mapping[str, str] | None = None) -> Path | None:
    """The root of the CUDA toolkit; None where there is no nvcc.

    An nvcc on ``PATH`` may be a link or a script that lies elsewhere, so it is asked.
    PyTorch does not ask: for ``/usr/local/bin/nvcc`` it takes ``/usr/local``.
    """
    environment = os.environ if environment is None else environment
    chosen = environment.get("CUDA_HOME") or environment.get("CUDA_PATH")
    if chosen:
        roots = [Path(chosen)]
    else:
        nvcc = which("nvcc", environment)
        above = Path(nvcc).parent.parent if nvcc else None
        roots = [_root_of(nvcc) if nvcc else None, Path("/usr/local/cuda"), above]
    return next((r for r in roots if r and shutil.which(r / "bin/nvcc")), None)


@functools.cache
def _root_of(nvcc: str) -> Path:
    """What nvcc itself says of its root: ``#$ TOP=/usr/local/cuda-13.0/bin/..``."""
    said = _said(nvcc, "--dryrun", "-x", "cu", "-c", os.devnull, "-o", os.devnull)
    top = re.search(r"^#\$ TOP=(.+)$", said, re.MULTILINE)
    return Path(os.path.normpath(top[1])) if top else Path(nvcc).resolve().parent.parent


def _said(*command: str | Path) -> str:
    """All that a program prints; nothing where it does not run."""
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout + said.stderr


def cudart(home: Path, environment: Mapping[str, str] | None = None) -> Path | None:
    """The folder with the ``libcudart.so`` that PyTorch links GPU code with.

    PyTorch looks in the first two folders. The C++ compiler knows the system's own.
    """
    places = [home / "lib64", home / "lib", *sorted(home.glob("targets/*/lib"))]
    if compiler := find("c++", environment):
        places.append(Path(_said(compiler, "-print-file-name=libcudart.so")).parent)
    named = (place for place in places if place.name)
    return next((p for p in named if os.path.exists(p / "libcudart.so")), None)


def architectures(nvcc: str) -> str:
    """``TORCH_CUDA_ARCH_LIST`` for all the GPUs that this nvcc can compile for."""
    known = _said(nvcc, "--list-gpu-arch").split()
    names = {name: f"compute_{name.replace('.', '')}" for name in ARCHITECTURES}
    chosen = [name for name in ARCHITECTURES if names[name] in known]
    return f"{';'.join(chosen or ARCHITECTURES)}+PTX"


def release(compiler: str) -> str:
    """The version of CUDA or ROCm that an nvcc or hipcc is of; empty if unknown."""
    said = _said(compiler, "--version")
    found = re.search(r"(?:release|HIP version:) *([\d.]+)", said)
    return found[1] if found else ""


def gpu_fault(
    kind: str, version: str, environment: Mapping[str, str] | None = None
) -> tuple[str, str] | None:
    """What keeps GPU kernels from being built for a PyTorch, and the remedy.

    Args:
        kind: ``"cuda"`` or ``"hip"``, for which that PyTorch is built.
        version: Its ``torch.version.cuda`` or ``torch.version.hip``.
        environment: The environment variables; those of this process when left out.

    Returns:
        None where they can be built.
    """
    remedy = install(kind, version)
    name, toolkit = ("nvcc", "CUDA") if kind == "cuda" else ("hipcc", "ROCm")
    compiler = find(name, environment)
    if compiler is None:
        return f"no {name} found", remedy
    have = release(compiler)
    if have and numbers(have)[0] != numbers(version)[0]:
        fault = f"{compiler} is of {toolkit} {have}, torch of {toolkit} {version}"
        return f"{fault}, and their major versions must agree", remedy
    if kind == "cuda" and cudart(home := cuda_home(environment), environment) is None:
        fault = f"{compiler} has no libcudart.so in {home / 'lib64'} or {home / 'lib'}"
        return fault, f"install cuda-cudart-dev, or {remedy}"
    return None


def install(kind: str, version: str) -> str:
    """What to install, so that GPU kernels can be built for this CUDA or ROCm."""
    if kind == "hip":
        return "install ROCm's development packages, and set ROCM_HOME to their folder"
    major, least = numbers(version)[0], numbers(NVCC_FOR_ALL)
    which_one = f"{major}.x"
    if major == least[0]:
        which_one = f"{NVCC_FOR_ALL} or a later {major}.x"
    return f"install the CUDA toolkit {which_one}, and set CUDA_HOME to it"


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version: ``2.13.0+cu130`` is ``(2, 13, 0)``."""
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])))


def rocm_home(environment: Mapping[str, str] | None = None) -> Path:
    """The folder where ROCm is, or would be: PyTorch's answer, or AMD's pip package."""
    environment = os.environ if environment is None else environment
    chosen = environment.get("ROCM_HOME") or environment.get("ROCM_PATH")
    if chosen:
        return Path(chosen)
    package = importlib.util.find_spec("_rocm_sdk_core")
    if package and package.origin:
        return Path(package.origin).parent.resolve()
    hipcc = which("hipcc", environment)
    return Path(hipcc).resolve().parent.parent if hipcc else Path("/opt/rocm")


def hip_bitcode() -> Path | None:
    """AMD's device library for a clang that is not ROCm's; None without HIP's headers.

    Debian's packages are rocm-device-libs and libamdhip64-dev.
    """
    bitcode = next(Path("/usr/lib").glob("*/amdgcn/bitcode"), None)
    return bitcode if Path("/usr/include/hip/hip_runtime.h").is_file() else None


def _in_toolkit(
    name: str, home: Path | None, environment: Mapping[str, str]
) -> str | None:
    inside = shutil.which(str(home / "bin" / name)) if home else None
    # The compiler of a toolkit that a variable names is in there or nowhere.
    is_chosen = any(map(environment.get, _CHOSEN_BY.get(name, ())))
    return inside or (None if is_chosen else which(name, environment) or _bundled(name))


def _bundled(name: str) -> str | None:
    """Triton brings some programs of the CUDA toolkit."""
    triton = importlib.util.find_spec("triton")
    folders = triton.submodule_search_locations if triton else ()
    places = (str(Path(folder, "backends/nvidia/bin")) for folder in folders)
    return shutil.which(name, path=os.pathsep.join(places))


def _clang(environment: Mapping[str, str]) -> str | None:
    """ROCm's own, or one of a distribution."""
    rocm = rocm_home(environment)
    own = (rocm / folder / "clang++" for folder in ("lib/llvm/bin", "llvm/bin"))
    found = next((str(path) for path in own if path.is_file()), None)
    return found or _first(CLANGS, environment)


def llvm_tool(clang: str, name: str) -> str | None:
    """A program of a clang's own version, which knows that clang's targets."""
    suffix = re.search(r"(-\d+)?$", clang)[0]
    beside = Path(clang).resolve().with_name(f"llvm-{name}")
    return shutil.which(str(beside)) or which(f"llvm-{name}{suffix}", os.environ)


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

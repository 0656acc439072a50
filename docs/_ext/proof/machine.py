"""What this machine has: the versions that can change what a run prints."""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

from .files import ROOT, load

# Of how this engine runs, compiles and digests. A higher number outdates all records.
ENGINE = "3"
# As `toolchain.find` knows them: "c++" is what CXX says, "clang" may be ROCm's.
COMPILERS = ("c++", "g++", "nvcc", "clang", "hipcc")
# Those that a record names only if its run asked for them. "clang" needs HIP's files.
OPTIONAL = {"nvcc": ("nvcc",), "clang": ("clang", "hip"), "hipcc": ("hipcc",)}

toolchain = load(ROOT / "src" / "opbook" / "toolchain.py")


def package_version(name: str) -> str:
    """The version of an installed package, "" of any other name."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _tool_version(name: str) -> str:
    if not (path := toolchain.find(name)):
        return ""
    asked = subprocess.run([path, "--version"], capture_output=True, text=True)
    lines = [s for s in asked.stdout.splitlines() if re.search(r"\d+\.\d+", s)]
    return lines[0] if lines else asked.stdout.strip()


@cache
def gpus() -> list[str]:
    """Names of the GPUs that this process may use, without loading a driver."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible in ("", "-1"):
        return []
    cards = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    names = re.findall(r"Model:\s*(.+)", "\n".join(p.read_text() for p in cards))
    names = names or _ask_driver("name")
    if visible and re.fullmatch(r"\d+(,\d+)*", visible):  # it may name them otherwise
        names = [names[int(i)] for i in visible.split(",") if int(i) < len(names)]
    for node in Path("/sys/class/kfd/kfd/topology/nodes").glob("*/properties"):
        names += re.findall(r"gfx_target_version ([1-9]\d*)", node.read_text())
    return names


@cache
def driver() -> str:
    """Version of the NVIDIA driver; "" where there is none."""
    return next(iter(_ask_driver("driver_version") if gpus() else ()), "")


def _ask_driver(field: str) -> list[str]:
    """A line for each NVIDIA GPU; none without their driver."""
    if not (smi := shutil.which("nvidia-smi")):
        return []
    query = [smi, f"--query-gpu={field}", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True)
    return answer.stdout.splitlines() if answer.returncode == 0 else []


@cache
def environment() -> dict[str, str]:
    """Versions that can change what a run prints or what a compiler makes."""
    versions = {"python": platform.python_version(), "machine": platform.machine()}
    versions |= {name: package_version(name) for name in ("torch", "triton", "numpy")}
    versions |= {name: _tool_version(name) for name in COMPILERS}
    versions["hip"] = "yes" if toolchain.hip_bitcode() else ""
    versions["gpu"] = ", ".join(gpus())
    versions["driver"] = driver()
    return versions | {"engine": ENGINE}


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


def in_words(versions: dict[str, str]) -> str:
    """The machine of a record, for its readers."""
    where = versions.get("gpu") or versions.get("machine", "").replace("_", "-")
    torch = versions.get("torch", "").partition("+")[0]
    return f"{where} with PyTorch {torch}" if torch else where

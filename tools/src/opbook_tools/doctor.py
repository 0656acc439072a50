"""``opbook doctor``: what this machine can build and run, what it cannot, and why.

It imports Python's own modules alone, and asks PyTorch in a process of its own, because
that import may be the fault. It speaks of the library opbook where that is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import functools
import importlib.machinery
import importlib.metadata
import importlib.util
import itertools
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

try:
    import grp
    import pwd
except ImportError:  # Windows has neither
    grp = pwd = None

from opbook_tools import borrowed

toolchain = borrowed.module("toolchain.py")

TOOLKITS = Path("/usr/local")  # where NVIDIA's installer puts them
FILE_LOCKS = (2, 14)  # from here on a lock ends with the process that holds it
STALE_AFTER = 15 * 60  # seconds; an extension that includes all of PyTorch takes two
TIMEOUT = 120  # seconds for one program that is asked

OK, WARNING, PROBLEM = "ok", "warning", "problem"

_LOADER = ("LD_LIBRARY_PATH", "LD_PRELOAD")  # lead it to other libraries
_NVCC_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")  # which nvcc reads

_OWN_CACHE = "set TORCH_EXTENSIONS_DIR to a folder of yours with mode 700"

# Runs in a process of its own: what only an imported torch knows, as JSON. The second
# answer is of the library, whose import may end the process.
_ASK_TORCH = """\
import sys
sys.path.remove("")  # the current folder must not hide a module
import json, os, re
import torch
answer = {"cxx11": torch._C._GLIBCXX_USE_CXX11_ABI, "built_for": [], "gpus": []}
answer["refused"], answer["targets"] = [], []
chosen = os.environ.get("TORCH_CUDA_ARCH_LIST", "")
for name in [*re.split("[ ;]+", chosen.strip(" ;")), chosen]:  # a ; too many, at last
    os.environ["TORCH_CUDA_ARCH_LIST"] = name
    try:
        from torch.utils import cpp_extension
        flags = cpp_extension._get_cuda_arch_flags() if name else []
        answer["targets"] += re.findall(r",code=(\\w+)", " ".join(flags))
    except ValueError:
        if name != chosen or not answer["refused"]:
            answer["refused"].append(name)
    except Exception:
        break  # this torch cannot be asked
if torch.cuda.is_available():
    answer["built_for"] = torch.cuda.get_arch_list()
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        arch = f"{properties.major}.{properties.minor}"
        arch = getattr(properties, "gcnArchName", arch) if torch.version.hip else arch
        answer["gpus"].append([properties.name, arch.partition(":")[0]])
print(json.dumps(answer), flush=True)
if not sys.argv[1:]:
    sys.exit()
answer = {}
sys.path.insert(0, sys.argv[1])
try:
    import opbook
    names = torch._C._dispatch_get_all_op_names()
    answer["operators"] = sum(name.startswith("opbook::") for name in names)
except Exception as error:
    answer["failed"] = f"{type(error).__name__}: {error}".splitlines()[0]
print(json.dumps(answer))
"""


@dataclass(frozen=True)
class Finding:
    """One thing that a check found out.

    Attributes:
        level: "ok", "warning" (perhaps not what you want) or "problem" (will not work).
        text: What is the case.
        remedy: What to do about it; empty where nothing is to be done.
    """

    level: str
    text: str
    remedy: str = ""


ok, warning, problem = (
    functools.partial(Finding, level) for level in (OK, WARNING, PROBLEM)
)


def found(module: str) -> tuple[list[str], Path | None]:
    """A module's folders, and the file that its import runs; it is not imported."""
    spec = importlib.util.find_spec(module)
    folders = [*(spec.submodule_search_locations or ())] if spec else []
    return folders, Path(spec.origin) if spec and spec.origin else None


def opbook_here() -> Path | None:
    """The folder of the package ``opbook``."""
    file = found("opbook")[1]
    return file.parent if file else None


@dataclass(frozen=True)
class Machine:
    """What the checks look at; each fact is found when it is first asked for.

    Attributes:
        environment: The environment variables.
        package: The folder of the package ``opbook``; None where it is not installed.
    """

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    package: Path | None = field(default_factory=opbook_here)

    def which(self, command: str) -> str | None:
        """Finds a command on ``PATH``, as a shell would."""
        return toolchain.which(command, self.environment)

    def output(self, *command: str, input: str = "") -> tuple[int, str]:
        """Runs a program: its exit status, and standard output and error in one."""
        try:
            done = subprocess.run(
                command,
                env=dict(self.environment),
                input=input,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 124, f"no answer in {TIMEOUT} s"
        except OSError as error:
            return 127, str(error)
        return done.returncode, done.stdout

    @functools.cached_property
    def torch_folder(self) -> Path | None:
        """Where torch is installed."""
        return next(map(Path, found("torch")[0]), None)

    @functools.cached_property
    def torch_file(self) -> Path | None:
        """What ``import torch`` would run."""
        return found("torch")[1]

    @functools.cached_property
    def torch_build(self) -> dict[str, str]:
        """``version``, ``cuda`` and ``hip`` of torch, read from its version.py."""
        file = self.torch_folder / "version.py" if self.torch_folder else None
        text = ""
        with contextlib.suppress(OSError):
            text = content(file).decode(errors="replace") if file else ""
        found = re.findall(r"^_*(\w+?)_*\s*(?::.*?)?= *['\"](.*)['\"]$", text, re.M)
        return dict(found)

    @functools.cached_property
    def torch_version(self) -> tuple[int, ...]:
        """Major and minor version of torch; empty without torch."""
        return toolchain.numbers(self.torch_build.get("version", ""))[:2]

    @functools.cached_property
    def torch_says(self) -> dict:
        """What an imported torch says, or ``error`` with its last words."""
        library = [str(self.package.parent)] if self.package else []
        status, output = self.output(sys.executable, "-c", _ASK_TORCH, *library)
        answers, last = {}, "no output"
        for last in output.strip().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                answer = json.loads(last)
                answers |= answer if isinstance(answer, dict) else {}
        if status or "cxx11" not in answers:
            fault = last if status >= 0 else f"killed by signal {-status}"
            answers["failed" if "cxx11" in answers else "error"] = fault
        return answers

    @functools.cached_property
    def triton(self) -> tuple[list[str], Path | None]:
        """Triton's folders, and what ``import triton`` would run."""
        return found("triton")

    @functools.cached_property
    def gpu_kind(self) -> str:
        """``cuda`` or ``hip``, for which torch is built; empty for neither."""
        return next(
            (kind for kind in ("cuda", "hip") if self.torch_build.get(kind)), ""
        )

    @functools.cached_property
    def nvcc(self) -> str | None:
        """The nvcc that builds use: ``CUDA_HOME`` goes before ``PATH``."""
        return toolchain.find("nvcc", self.environment)

    @functools.cached_property
    def hipcc(self) -> str | None:
        """The hipcc that torch would use: ``ROCM_HOME`` goes before ``PATH``."""
        return toolchain.find("hipcc", self.environment)

    @functools.cached_property
    def gpu_fault(self) -> tuple[str, str] | None:
        """What keeps GPU kernels from being built for this torch, and the remedy."""
        version = self.torch_build[self.gpu_kind]
        found = toolchain.gpu_fault(self.gpu_kind, version, self.environment)
        if found and (folder := self.fitting_toolkit):
            return found[0], f"set CUDA_HOME={folder}, which fits this torch"
        return found

    @functools.cached_property
    def fitting_toolkit(self) -> Path | None:
        """A CUDA toolkit that torch could build with, beside the one that it takes."""
        version = self.torch_build.get("cuda")
        above = Path(self.environment.get("CUDA_HOME") or "/").parent
        on_path = self.environment.get("PATH", "").split(os.pathsep)
        folders = [above, *(Path(name).parent for name in on_path if name)]
        for folder in [*folders, *sorted(TOOLKITS.glob("cuda*"))] if version else ():
            environment = {**self.environment, "CUDA_HOME": str(folder)}
            if not toolchain.gpu_fault("cuda", version, environment):
                return folder
        return None

    @functools.cached_property
    def library(self) -> Path | None:
        """The file of ``opbook._C``; None before it is built."""
        suffixes = importlib.machinery.EXTENSION_SUFFIXES  # of this Python
        found = sorted(self.package.glob("_C.*so"))
        return min(found, key=lambda p: p.name[2:] not in suffixes, default=None)

    @functools.cached_property
    def cache(self) -> Path:
        """The folder in which torch builds and caches JIT extensions."""
        if chosen := self.environment.get("TORCH_EXTENSIONS_DIR"):
            return Path(os.path.abspath(chosen))
        home = Path(self.environment.get("HOME") or os.path.expanduser("~"))
        caches = self.environment.get("XDG_CACHE_HOME") or home / ".cache"
        return Path(caches, "torch_extensions")


# The checks, in the order of the screen.


def check_python(machine: Machine) -> Iterator[Finding]:
    """Which Python this is, and whether C code can be compiled for it."""
    text = f"Python {sys.version.split()[0]}"
    header = Path(sysconfig.get_path("include"), "Python.h")
    if header.exists():
        yield ok(f"{text}, with its headers")
    else:
        yield problem(
            f"{text} has no Python.h: nothing can be built for it",
            "install its headers (python3-dev, python3-devel), or use a Python that "
            "has them",
        )


def check_torch(machine: Machine) -> Iterator[Finding]:
    """Which torch this is, and whether it can be imported."""
    if not machine.torch_version:
        if machine.torch_file:
            name = short(machine.torch_file)
            text = f"{name} is imported as torch, and has no version"
            remedy = "rename it; if it is torch's own, install torch again"
        else:
            text, remedy = "torch is not installed", "python -m pip install torch"
        yield problem(text, remedy)
        return
    build, kind = machine.torch_build, machine.gpu_kind
    made_for = {"cuda": "CUDA", "hip": "ROCm"}.get(kind, "the CPU alone")
    text = (
        f"torch {build['version']}, built for {made_for} {build.get(kind, '')}".strip()
    )
    least = toolchain.LEAST["torch"]
    if machine.torch_version < toolchain.numbers(least):
        who = "opbook needs" if machine.package else "projects of `opbook new` need"
        yield Finding(
            PROBLEM if machine.package else WARNING,
            f"{text}: {who} {least} or later",
            f"python -m pip install 'torch>={least}'",
        )
    elif error := machine.torch_says.get("error"):
        suffixes = importlib.machinery.EXTENSION_SUFFIXES  # of this Python
        made = {path.name[2:] for path in machine.torch_folder.glob("_C.*")}
        if made and not made.intersection(suffixes):
            error = f"it is for another Python ({', '.join(made)})"
        yield problem(
            f"{text}: it cannot be imported: {error}",
            _loader_remedy(machine)
            or "install torch again, and see whether `python -c 'import torch'` works",
        )
    else:
        yield ok(text)
        abi = int(machine.torch_says["cxx11"])
        yield ok(
            f"ABI: a library for the stable one of torch {least} loads here; other C++ "
            f"needs _GLIBCXX_USE_CXX11_ABI={abi}"
        )


def _loader_remedy(machine: Machine) -> str:
    """Says which variables keep torch from being imported; empty if none does."""
    environment = dict(machine.environment)
    variables = [name for name in _LOADER if environment.pop(name, "")]
    if not variables or "error" in Machine(environment, machine.package).torch_says:
        return ""
    settings = (f"{name}={machine.environment[name]}" for name in variables)
    return f"unset {' and '.join(settings)}: without, torch can be imported"


def check_library(machine: Machine) -> Iterator[Finding]:
    """Whether ``opbook._C`` is built, loads, and has code for the GPU."""
    if machine.package is None:
        return
    rebuild = f"build it again with the torch that will load it: {toolchain.REBUILD}"
    if machine.library is None:
        yield problem("opbook._C is not built", toolchain.REBUILD)
        return
    library = f"opbook._C ({short(machine.library)})"
    try:
        targets = library_targets(machine, machine.library)
    except OSError as error:  # a folder, or a link to nothing
        fault = f"{library} cannot be read: {error.strerror}"
        yield problem(fault, f"delete it, then: {toolchain.REBUILD}")
        return
    if error := machine.torch_says.get("failed"):
        why = "it does not load"
        if "undefined symbol" in error:
            why = "it was built for another torch"
        elif "No module named 'opbook._C'" in error:
            suffixes = ", ".join(importlib.machinery.EXTENSION_SUFFIXES)
            why = f"it was built for another Python: this one loads {suffixes}"
        yield problem(f"{library}: {why}: {error}", rebuild)
    elif "operators" in machine.torch_says:
        yield ok(f"{library}: {machine.torch_says['operators']} operators")
    gpus = machine.torch_says.get("gpus", [])
    if machine.gpu_kind and not targets:
        yield Finding(
            PROBLEM if gpus else WARNING,
            "opbook._C was built without GPU kernels: its operators raise an error for "
            "tensors on a GPU",
            "; then: ".join(
                [*(machine.gpu_fault or ())[1:], f"USE_CUDA=1 {toolchain.REBUILD}"]
            ),
        )
        return
    yield ok(f"opbook._C holds code for {', '.join(['the CPU', *targets])}")
    for name, arch in gpus:
        if not runs_on(targets, arch):
            yield problem(
                f"opbook._C has no code for {name} ({arch})",
                f"build it again with {_list_variable(machine)}={arch}",
            )


def check_cpp_compiler(machine: Machine) -> Iterator[Finding]:
    """Whether torch finds a C++ compiler, and that compiler knows C++20."""
    chosen = machine.environment.get("CXX")
    command = (chosen or "c++").split()
    if toolchain.find("c++", machine.environment) is None:
        others = [name for name in ("g++", "clang++") if machine.which(name)]
        remedy = f"set CXX={others[0]}" if others else "install g++ or clang++"
        missing = f"CXX={chosen}: not found" if chosen else "no C++ compiler (c++)"
        yield problem(f"{missing}: nothing can be built", remedy)
        return
    output = machine.output(*command, "--version")[1]
    name = (output.splitlines() or [command[0]])[0].strip()
    source = "source.cpp", "#include <concepts>\n"
    variables = "CFLAGS", "CPPFLAGS"  # setuptools passes them on
    flags = " ".join(machine.environment.get(name, "") for name in variables)
    try:
        flags = shlex.split(flags)
    except ValueError:  # an odd quote
        flags = flags.split()
    if error := _compiled(machine, source, *command, "-std=c++20"):
        yield problem(
            f"{name} does not compile C++20: {error[0]}",
            "install g++ 11 or clang++ 16, or later, and set CXX to it",
        )
    elif error := _compiled(machine, source, *command, *flags, "-std=c++20"):
        yield problem(
            f"{name} refuses CFLAGS or CPPFLAGS ({' '.join(flags)}): {error[0]}",
            "unset them, or set CXX to the compiler that they are for",
        )
    else:
        yield ok(f"C++ compiler: {name}")


def _compiled(
    machine: Machine, source: tuple[str, str], *command: str
) -> list[str] | None:
    """What a compiler says that makes no file of a source; None if it makes one."""
    with tempfile.TemporaryDirectory() as folder:
        path, made = Path(folder, source[0]), Path(folder, "made.o")
        path.write_text(source[1])
        status, output = machine.output(*command, "-c", str(path), "-o", str(made))
        if made.is_file() and not status:
            return None
    lines = output.replace(f"{folder}{os.sep}", "").strip().splitlines()
    return (
        lines if status and lines else [f"no file is made, and its status is {status}"]
    )


def check_build_tools(machine: Machine) -> Iterator[Finding]:
    """What a build needs besides compilers."""
    versions = {"setuptools": _version("setuptools"), "ninja": ""}
    fault = ""
    if ninja := machine.which("ninja"):  # torch asks PATH alone
        status, said = machine.output(ninja, "--version")
        lines = said.strip().splitlines() or [f"status {status}"]
        versions["ninja"], fault = ("", lines[-1]) if status else (lines[-1], "")
    least, have = toolchain.LEAST["setuptools"], versions["setuptools"]
    if toolchain.numbers(have) < toolchain.numbers(least):
        yield Finding(
            PROBLEM if machine.package or not have else WARNING,
            f"setuptools {have}: opbook and projects of `opbook new` need {least}"
            if have
            else "no setuptools: `pip install --no-build-isolation` cannot build",
            f"python -m pip install 'setuptools>={least}'",
        )
    if not versions["ninja"]:
        what, remedy = "no ninja", "python -m pip install ninja"
        if fault:
            what = f"{short(Path(ninja))} does not run ({fault})"
        elif _version("ninja"):
            what, remedy = "ninja is not on PATH", "activate the environment"
        text = f"{what}: builds compile one file at a time, and load() refuses"
        yield warning(text, remedy)
    jobs = machine.environment.get("MAX_JOBS", "")
    if jobs and not (jobs.isdecimal() and int(jobs)):
        effect = "no limit for ninja" if jobs.isdecimal() else "torch ignores it"
        yield warning(f"MAX_JOBS={jobs}: {effect}", "set it to 1 or more")
    if found := [f"{name} {have}" for name, have in versions.items() if have]:
        yield ok(f"build tools: {', '.join(found)}")


def check_gpu_compiler(machine: Machine) -> Iterator[Finding]:
    """Whether the GPU compiler that torch needs is here, in a version that fits."""
    if machine.gpu_kind:
        name = "nvcc" if machine.gpu_kind == "cuda" else "hipcc"
        kind = {"cuda": "CUDA", "hip": "ROCm"}[machine.gpu_kind]
        version = machine.torch_build[machine.gpu_kind]
        if machine.gpu_fault:
            fault, remedy = machine.gpu_fault
            variables = f"{kind.upper()}_HOME", f"{kind.upper()}_PATH"
            chosen = next(filter(machine.environment.get, variables), None)
            if chosen and not toolchain.find(name, machine.environment):
                fault = f"{chosen}={machine.environment[chosen]} has no bin/{name}"
                if machine.fitting_toolkit is None:
                    remedy = f"set it to a folder that has one, or {remedy}"
            text = f"GPU kernels cannot be built for this torch ({kind} {version})"
            yield problem(f"{text}: {fault}", remedy)
            return
        compiler = toolchain.find(name, machine.environment)
        release = toolchain.release(compiler) or "of an unknown version"
        where = short(Path(compiler))
        text = f"{name} {release} ({where})"
        faults = [*_nvcc_faults(machine, text)] if name == "nvcc" else []
        yield from faults or [ok(f"{text}, torch has {kind} {version}")]
    elif machine.nvcc:
        release = toolchain.release(machine.nvcc)
        text = f"nvcc {release}: compiles kernels, which this torch cannot run"
        yield ok(text)
    else:
        yield ok("no GPU compiler, and none needed: torch is for the CPU alone")


def _nvcc_faults(machine: Machine, nvcc: str) -> Iterator[Finding]:
    """What nvcc itself refuses: a GPU that it does not know, the compiler, glibc."""
    known = re.findall(
        r"compute_(\d+)", machine.output(machine.nvcc, "--list-gpu-arch")[1]
    )
    listed = [re.sub(r"\D", "", name) for name in machine.torch_says.get("targets", [])]
    here = [arch.replace(".", "") for _, arch in machine.torch_says.get("gpus", [])]
    chosen = machine.environment.get("TORCH_CUDA_ARCH_LIST")
    for arch in sorted({*(listed if chosen else here)} - {*known} if known else ()):
        yield problem(
            f"{nvcc} does not know {arch[:-1]}.{arch[-1]}: it ends with `Unsupported "
            f"gpu architecture 'compute_{arch}'`",
            "install a CUDA toolkit that knows it, or take it out of "
            "TORCH_CUDA_ARCH_LIST; `nvcc --list-gpu-arch` prints what is known",
        )
    compiler = machine.environment.get("CC")  # torch passes that on
    host = ["-ccbin", compiler] if compiler else []
    if said := _compiled(machine, ("empty.cu", ""), machine.nvcc, *host):
        fault = next(
            (line for line in said if "error" in line.lower()), said[0]
        ).strip()
        remedy = "see whether nvcc compiles an empty file; set CC to another compiler"
        if flags := [name for name in _NVCC_FLAGS if machine.environment.get(name)]:
            remedy = f"look at {' and '.join(flags)}, which nvcc reads"
        if "unsupported GNU" in fault or "unsupported clang" in fault:
            remedy = (
                "install a compiler that this nvcc allows, and set CC and CXX to it"
            )
        if "exception specification" in fault:
            remedy = "glibc is newer than this CUDA allows: install CUDA 13 or later"
        yield problem(f"{nvcc} compiles nothing here: {fault}", remedy)


def check_gpus(machine: Machine) -> Iterator[Finding]:
    """Which GPUs torch sees, and whether torch itself has code for them."""
    built_for = machine.torch_says.get("built_for", [])
    for name, arch in machine.torch_says.get("gpus", []):
        if built_for and not runs_on(built_for, arch):
            yield problem(
                f"GPU: {name} ({arch}): torch has no code for it",
                "install a torch that is built for this GPU",
            )
        else:
            yield ok(f"GPU: {name} ({arch})")
    if machine.torch_says.get("gpus") or "error" in machine.torch_says:
        return
    if machine.gpu_kind:
        yield warning(
            "no GPU is visible to torch: GPU kernels can be built, and not be run",
            "look at the driver (nvidia-smi, rocminfo), at CUDA_VISIBLE_DEVICES, and "
            "at what the container passes on",
        )
    elif gpus := _listed_by_the_driver(machine):
        yield warning(
            f"torch is built for the CPU alone, and there is a GPU: {gpus[0]}",
            "to use it, install a build of torch for CUDA",
        )
    else:
        yield ok("no GPU: operators run on the CPU")


def _listed_by_the_driver(machine: Machine) -> list[str]:
    """NVIDIA's GPUs, without the number and the UUID of each."""
    if not (program := machine.which("nvidia-smi")):
        return []
    status, said = machine.output(program, "-L")
    return [] if status else re.findall(r"^GPU \d+: (.*?)(?: \(|$)", said, re.M)


def check_architectures(machine: Machine) -> Iterator[Finding]:
    """Whether a build knows for which GPUs to compile."""
    variable = _list_variable(machine)
    chosen = machine.environment.get(variable, "")
    gpus = [arch for _, arch in machine.torch_says.get("gpus", [])]
    if not machine.gpu_kind:
        return
    example = "8.0;9.0+PTX" if machine.gpu_kind == "cuda" else "gfx90a;gfx942"
    names = re.split(r"[ ;]+", chosen.strip(" ;"))
    if not chosen or ("native" in names and not gpus):
        is_set = f"is {chosen}" if chosen else "is not set"
        if gpus:
            here = ", ".join(sorted(set(gpus)))
            yield ok(f"{variable} {is_set}: builds are for {here}")
        elif "error" not in machine.torch_says:
            amd = "cannot determine" if chosen else "invalid target ID ''"
            ends = {
                "cuda": "torch's build ends with `IndexError: list index out of range`",
                "hip": f"the compiler ends with `{amd}`",
            }[machine.gpu_kind]
            yield problem(
                f"{variable} {is_set} and no GPU is visible: {ends}",
                f"set it, for example to '{example}'",
            )
        return
    wrong = machine.torch_says.get("refused", [])
    if machine.gpu_kind == "hip":
        wrong = [name for name in names if not _is_amd(name)]
    if wrong:
        yield problem(
            f"{variable} has {', '.join(map(repr, wrong))}, which torch or the "
            "compiler refuses",
            f"write it like {example}",
        )
        return
    yield ok(f"{variable}={chosen}")
    targets = machine.torch_says.get("targets", [])
    if machine.gpu_kind == "hip":
        single = all(map(_is_one_chip, names))
        targets = [name.partition(":")[0] for name in names] if single else []
    for arch in sorted(set(gpus)):
        if targets and not runs_on(targets, arch):
            yield problem(
                f"{variable} leaves out the GPU that is here ({arch}): what you build "
                "ends with `no kernel image is available`",
                f"add {arch} to it",
            )


def check_triton(machine: Machine) -> Iterator[Finding]:
    """Whether Triton is here, and where its kernels run."""
    version = _version("triton")
    if not version:
        yield warning(
            "no Triton: no kernels in Triton, and no torch.compile for GPUs",
            "python -m pip install triton",
        )
        return
    folders, file = machine.triton
    if file and not folders:
        yield problem(f"{short(file)} is imported as triton", "rename it")
        return
    interpreted = machine.environment.get("TRITON_INTERPRET") == "1"
    gpus = machine.torch_says.get("gpus")
    if gpus and not interpreted and (faults := [*_triton_faults(machine, version)]):
        yield from faults
        return
    if interpreted and gpus:
        yield warning(
            f"Triton {version} interprets its kernels, though there is a GPU",
            "unset TRITON_INTERPRET",
        )
    elif interpreted or gpus:
        where = "the CPU, by its interpreter" if interpreted else "the GPU"
        yield ok(f"Triton {version}: kernels run on {where}")
    else:
        yield ok(
            f"Triton {version}: kernels run with TRITON_INTERPRET=1, without a GPU"
        )


def _triton_faults(machine: Machine, version: str) -> Iterator[Finding]:
    """What Triton's first launch ends with: no headers, or a ptxas that is too old."""
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        yield problem(
            f"Triton {version} cannot launch a kernel: this Python has no Python.h",
            "install its headers (python3-dev, python3-devel)",
        )
    for name, arch in machine.torch_says["gpus"] if machine.gpu_kind == "cuda" else ():
        variable, ptxas = _ptxas(machine, arch)
        if not ptxas:
            continue
        chip = f"sm_{arch.replace('.', '')}"
        _, output = machine.output(ptxas, f"--gpu-name={chip}", os.devnull)
        if "is not defined for option" in output:
            yield problem(
                f"Triton {version}: {short(Path(ptxas))} does not know {name} ({chip})",
                f"update Triton, or set {variable} to the ptxas of a newer CUDA",
            )


def _ptxas(machine: Machine, arch: str) -> tuple[str, str | None]:
    """The ptxas that Triton takes for a GPU, and the variable that chooses it.

    Newer versions of Triton bring another one for GPUs from 10.0 on.
    """
    places = [Path(folder, "backends/nvidia/bin") for folder in machine.triton[0]]
    newer = next(filter(Path.exists, (p / "ptxas-blackwell" for p in places)), None)
    variable, own = "TRITON_PTXAS_PATH", next(iter(places), Path()) / "ptxas"
    if newer and toolchain.numbers(arch) >= (10, 0):
        variable, own = "TRITON_PTXAS_BLACKWELL_PATH", newer
    return variable, machine.which(machine.environment.get(variable) or str(own))


def check_cache(machine: Machine) -> Iterator[Finding]:
    """Whether others can put code into the JIT cache, and whether a lock blocks it."""
    cache = machine.cache
    given = (
        "TORCH_EXTENSIONS_DIR"
        if machine.environment.get("TORCH_EXTENSIONS_DIR")
        else ""
    )
    name = f"{given}={short(cache)}" if given else f"JIT cache {short(cache)}"
    faults = [*_not_writable(cache), *_open_to_others(cache), *_locked(machine)]
    yield from faults
    if not faults:
        there = os.path.exists(cache)
        state = "yours alone, and unlocked" if there else "not there yet"
        yield ok(f"{name}: {state}")


def _not_writable(cache: Path) -> Iterator[Finding]:
    """What keeps torch from building in the cache, or from making it."""
    way = [cache, *cache.parents]
    there = next(filter(os.path.exists, way), Path("/"))
    if not there.is_dir():
        fault = "is not a folder"
    elif not os.access(there, os.W_OK | os.X_OK):
        fault = "is a folder that you may not write to"
    elif not shutil.disk_usage(there).free:
        fault = "is on a disk that is full"
    else:
        return
    yield problem(f"{short(there)} {fault}: load() cannot build", _OWN_CACHE)


def _open_to_others(cache: Path) -> Iterator[Finding]:
    """Folders in which somebody else can place a library for you to load."""
    if grp is None:
        return  # the modes of this system say something else
    inside = filter(os.path.isdir, [*cache.glob("*"), *cache.glob("*/*")])
    for folder in filter(os.path.exists, [cache, *inside]):
        if fault := _others_may_write(folder.stat()):
            yield problem(
                f"{short(folder)} {fault}: others can place a library there, and your "
                "next load() runs it",
                f"look at what is in it, then chmod go-w; or {_OWN_CACHE}",
            )
    # Who may rename a folder on the way there may put another in its place. The sticky
    # bit forbids that for folders which exist.
    way = [cache, *cache.parents]
    for child, folder in itertools.pairwise(way):
        if not os.path.exists(folder):
            continue
        status = folder.stat()
        fault = _others_may_write(status)
        if fault and not (status.st_mode & stat.S_ISVTX and os.path.exists(child)):
            yield problem(
                f"{short(folder)} {fault}: others can put a folder of theirs in the "
                f"place of {child.name}",
                _OWN_CACHE,
            )


def _others_may_write(status: os.stat_result) -> str:
    """Why somebody else may write to a folder; empty if nobody else but root may."""
    if status.st_uid not in (os.getuid(), 0):
        return f"belongs to another user ({status.st_uid})"
    mode = f"has mode {stat.S_IMODE(status.st_mode):o}"
    if status.st_mode & stat.S_IWOTH:
        return mode
    if status.st_mode & stat.S_IWGRP:
        # Many systems give each user a group of the same name, with nobody else in it.
        try:
            group, owner = grp.getgrgid(status.st_gid), pwd.getpwuid(status.st_uid)
        except KeyError:
            return f"{mode}, group {status.st_gid}"
        if group.gr_name != owner.pw_name or {*group.gr_mem} - {owner.pw_name}:
            return f"{mode}, group {group.gr_name}"
    return ""


def _locked(machine: Machine) -> Iterator[Finding]:
    if machine.torch_version >= FILE_LOCKS:
        return
    cache = machine.cache
    for lock in sorted([*cache.glob("*/lock"), *cache.glob("*/*/lock")]):
        age = time.time() - lock.lstat().st_mtime
        if age > STALE_AFTER:
            yield problem(
                f"{short(lock)} is {age / 60:.0f} minutes old: load() of "
                f"{lock.parent.name} waits for its end, and says nothing",
                "if no build is running, delete that file",
            )
        else:
            yield warning(
                f"{short(lock)}: a build is running, or was killed just now",
                "if no build is running, delete that file",
            )


CHECKS: tuple[Callable[[Machine], Iterator[Finding]], ...] = (
    check_python,
    check_torch,
    check_library,
    check_cpp_compiler,
    check_build_tools,
    check_gpu_compiler,
    check_gpus,
    check_architectures,
    check_triton,
    check_cache,
)


def diagnose(machine: Machine) -> list[Finding]:
    """Runs all checks."""
    try:
        os.getcwd()
    except FileNotFoundError:
        text = "the folder that this runs in was deleted: torch cannot be imported here"
        return [problem(text, "cd to a folder that exists")]
    return [finding for check in CHECKS for finding in check(machine)]


def library_targets(machine: Machine, library: Path) -> list[str]:
    """GPU architectures that a library holds code for, such as ``sm_90``.

    AMD names stand in the file as they are. NVIDIA's need cuobjdump; without it the
    answer for a library with code for NVIDIA GPUs is ``some NVIDIA GPUs``.
    """
    data = content(library)
    amd = {name.decode() for name in re.findall(rb"amdgcn-amd-amdhsa--(gfx\w+)", data)}
    if amd or b".nv_fatbin" not in data:
        return sorted(amd)
    tool = toolchain.find("cuobjdump", machine.environment)
    if not tool:
        return ["some NVIDIA GPUs"]
    lists = "--list-elf", "--list-ptx"
    _, output = machine.output(tool, *lists, str(library))
    found = re.findall(r"\.(sm_\d+[af]?)\.(cubin|ptx)", output)
    return sorted({f"{arch}+PTX" if kind == "ptx" else arch for arch, kind in found})


def content(path: Path) -> bytes:
    """What is in a file; a pipe, which would wait for its writer, raises an OSError."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "it is a pipe or a device", str(path))
    return path.read_bytes()


def runs_on(targets: list[str], arch: str) -> bool:
    """Whether code for any of these targets runs on a GPU.

    Machine code of NVIDIA runs on its own major version, from its minor version on; PTX
    on all that is newer. A name that ends in ``a``, ``sm_90a``, is for that GPU alone.

    Args:
        targets: Such as ``sm_80``, ``sm_90+PTX``, ``compute_90`` (PTX too), ``gfx942``.
        arch: ``9.0`` or ``gfx942``.
    """
    if arch.startswith("gfx") or "some NVIDIA GPUs" in targets:
        return arch in targets or "some NVIDIA GPUs" in targets
    major, minor = toolchain.numbers(arch)
    for target in targets:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)(\+PTX)?", target)
        if not match:
            continue
        have = int(match[2]), int(match[3])
        if match[4] == "a":
            fits = have == (major, minor)
        elif match[5] or match[1] == "compute":
            fits = have <= (major, minor)
        else:
            fits = have[0] == major and have[1] <= minor
        if fits:
            return True
    return False


def short(path: Path) -> str:
    """Writes a path relative to the current folder or to ``~`` where it can."""
    path = Path(os.path.abspath(path))
    for folder, name in ((Path.cwd(), ""), (Path(os.path.expanduser("~")), "~/")):
        if folder.name and path.is_relative_to(folder):
            return f"{name}{path.relative_to(folder)}"
    return str(path)


def _list_variable(machine: Machine) -> str:
    return "PYTORCH_ROCM_ARCH" if machine.gpu_kind == "hip" else "TORCH_CUDA_ARCH_LIST"


def _is_amd(name: str) -> bool:
    return bool(re.fullmatch(r"native|gfx[\d-]+-generic|gfx[\da-f]+(:\w+[+-])*", name))


def _is_one_chip(name: str) -> bool:
    return _is_amd(name) and name != "native" and not name.endswith("-generic")


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def run(chosen: argparse.Namespace) -> int:
    """Run ``opbook doctor`` with parsed arguments.

    Returns:
        The exit status: 1 if something will not work, 2 if a library cannot be read.
    """
    if not chosen.library:
        return report(diagnose(Machine()), chosen.json)
    from opbook_tools import library

    try:
        findings = library.inspect(Path(chosen.library), Machine())
    except library.Unreadable as error:
        print(f"opbook doctor: {error}", file=sys.stderr)
        return 2
    return report(findings, chosen.json)


def report(findings: list[Finding], as_json: bool = False) -> int:
    """Print what was found; return the exit status."""
    problems = sum(finding.level == PROBLEM for finding in findings)
    if as_json:
        listed = [dataclasses.asdict(finding) for finding in findings]
        print(json.dumps({"findings": listed, "problems": problems}, indent=1))
        return 1 if problems else 0
    lines = textwrap.TextWrapper(
        width=88,
        subsequent_indent=" " * 9,
        break_long_words=False,
        break_on_hyphens=False,
    )
    for finding in findings:
        print(lines.fill(f"{finding.level:8} {finding.text}"))
        if finding.remedy:
            print(lines.fill(f"{'':8} -> {finding.remedy}"))
    things = "1 thing" if problems == 1 else f"{problems} things"
    print(f"\n{things} will not work." if problems else "\nNo problem found.")
    return 1 if problems else 0

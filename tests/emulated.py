"""Compile a GPU launcher for the CPU and call it: the Python side of gpu_emulator.h."""

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

HERE = Path(__file__).parent
OBJECTS = HERE.parent / "build" / "emulated"  # what was compiled, by its content
# Launcher and kernels: checked at every access, and as HIP code, for 32 or 64 lanes.
FLAGS = ["-std=c++20", "-fPIC", "-fno-gnu-unique", "-Wno-unknown-pragmas"]
CHECKED = ["-O1", "-fsanitize=thread", "-fsanitize=alignment", "-D__HIP__"]
LANES = {32: [], 64: ["-D__GFX9__"]}
# A launch, kernel<types><<<configuration>>>(, and what it becomes.
LAUNCH = re.compile(r"([\w:]+(?:<[^;{}()]*>)?)\s*<<<(.*?)>>>\s*\(", re.DOTALL)
CALL = r"gpu_emulator::launch([=](auto... a) { \1(a...); }, \2)("
CXX_NAMES = {
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.float32: "float",
    torch.float64: "double",
    torch.bool: "bool",
    torch.uint8: "unsigned char",
}
# Of input and weight. The other half type has no code of its own.
FEW = ("c10::Half, c10::Half", "c10::Half, float", "float, float", "double, double")
SCALARS = {
    "bool": ctypes.c_bool,
    "int": ctypes.c_int,
    "long": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}


class GpuFault(Exception):
    """A launch that broke a rule; the message says which."""


def missing_tools() -> str:
    """Say what this machine lacks to run the emulator; empty where it lacks nothing."""
    if sys.platform != "linux":
        return "Linux (ucontext, g++, nm)"
    names = ("g++", "nm", "c++filt")
    return ", ".join(name for name in names if shutil.which(name) is None)


class Launcher(NamedTuple):
    """One function of a library: its mangled name and its C++ parameter types."""

    symbol: str
    parameters: tuple[str, ...]

    def takes(self, arguments: tuple) -> bool:
        """Tell whether the tensors' dtypes are those of the pointers."""
        return len(arguments) == len(self.parameters) and all(
            CXX_NAMES[argument.dtype] == re.sub(r" const|\*", "", parameter)
            for argument, parameter in zip(arguments, self.parameters, strict=True)
            if isinstance(argument, Tensor)
        )

    def types(self) -> list:
        """The parameters' ctypes."""
        return [
            ctypes.c_void_p if parameter.endswith("*") else SCALARS[parameter]
            for parameter in self.parameters
        ]


class Gpu:
    """The launchers of one ``.cu`` file, on an emulated GPU."""

    def __init__(self, library: Path, warp_size: int) -> None:
        self._library = ctypes.CDLL(str(library))
        self._warp_size = warp_size
        self._launchers = _launchers(library)

    def launch(self, name: str, *arguments, order: str = "ascending", seed=0) -> None:
        """Call the instance of ``name`` that fits the tensors, on a null stream.

        Args:
            name: A launcher that returns null or an error message.
            arguments: Tensors, numbers, and None for a null pointer.
            order: Which warps and lanes run first: ascending, descending or random.
            seed: Of the random order.

        Raises:
            GpuFault: The launch broke a rule of the GPU.
            LookupError: There is no such launcher.
            TypeError: None of its instances takes these tensors.
        """
        arguments = (*arguments, None)
        if name not in self._launchers:
            known = ", ".join(sorted(self._launchers))
            raise LookupError(f"no {name}: the file's launch_* functions are {known}")
        fitting = [each for each in self._launchers[name] if each.takes(arguments)]
        if not fitting:
            raise TypeError(f"no instance of {name} takes {arguments}")
        function = self._library[fitting[0].symbol]
        function.argtypes, function.restype = fitting[0].types(), ctypes.c_char_p
        self._library.gpu_emulator_reset(self._warp_size, order.encode(), seed)
        for argument in arguments:
            if isinstance(argument, Tensor):
                self._make_known(argument)
        error = function(*(_plain(argument) for argument in arguments))
        if error is not None:
            raise GpuFault(error.decode())

    def _make_known(self, tensor: Tensor) -> None:
        """Allow accesses to the tensor's elements, and not to what lies between."""
        if tensor.is_contiguous():
            size = tensor.numel() * tensor.element_size()
            begin = ctypes.c_void_p(tensor.data_ptr())
            self._library.gpu_emulator_memory(begin, ctypes.c_int64(size))
        else:
            for part in tensor.unbind(0):
                self._make_known(part)


def build(
    source: Path,
    warp_size: int,
    folder: Path,
    types: tuple[str, ...] | None = None,
    more: str = "",
) -> Gpu:
    """Compile a ``.cu`` file and the emulator into one library of ``folder``.

    Args:
        source: The file.
        warp_size: 32 or 64.
        folder: Where the library goes.
        types: Of input and weight, as for ``with_instances``; all when left out.
        more: C++ to append, such as launchers that take no structs.

    The launches may also be in headers that lie beside the file.
    """
    headers = folder / "include" / "hip"
    headers.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "gpu_emulator.h", headers / "hip_runtime.h")
    runtime = _object(HERE / "gpu_emulator.cpp", [*FLAGS, "-O2"])
    text = source.read_text() + more
    text = text if types is None else with_instances(text, types)
    texts = {header: header.read_text() for header in source.parent.glob("*.h")}
    texts[source] = text
    calls = {path: LAUNCH.sub(CALL, text) for path, text in texts.items()}
    if calls == texts or any("<<<" in text for text in calls.values()):
        raise ValueError(f"{source}: can't read its <<<...>>> launches")
    of_more = zlib.crc32(more.encode())  # a library that is loaded keeps its file name
    rewritten = folder / source.stem / f"{source.stem}.{warp_size}.{of_more}.cpp"
    rewritten.parent.mkdir(exist_ok=True)
    for path, text in calls.items():
        place = rewritten if path == source else rewritten.with_name(path.name)
        place.write_text(f'#line 1 "{path}"\n{text}')
    torch_headers = Path(torch.__file__).parent / "include"
    includes = [f"-I{path}" for path in (source.parent, headers.parent, torch_headers)]
    flags = [*FLAGS, *CHECKED, *LANES[warp_size], *includes]
    kernels = _object(rewritten, flags, folder, source.parent)
    library = rewritten.with_suffix(".so")
    # Without -fsanitize here: the linker must not add the sanitizers' libraries.
    _run("g++", "-shared", "-Wl,-Bsymbolic", kernels, runtime, "-o", library)
    return Gpu(library, warp_size)


def with_instances(text: str, types: Iterable[str]) -> str:
    """A ``.cu`` file that compiles faster: for these types of input and weight."""
    instances = " ".join(f"OPBOOK_INSTANTIATE({each});" for each in types)
    return text.replace("OPBOOK_FOR_INPUT_AND_WEIGHT(OPBOOK_INSTANTIATE);", instances)


def _object(source: Path, flags: list[str], *anywhere: Path) -> Path:
    """Compile a file, unless the same text was compiled with the same flags before.

    Args:
        source: The file.
        flags: The compiler's.
        anywhere: Folders whose names make no difference.
    """
    text = "\n".join([_compiler(), *flags, _run("g++", *flags, "-E", source)])
    for folder in anywhere:
        text = text.replace(str(folder), "")
    digest = hashlib.sha256(text.encode()).hexdigest()
    made = OBJECTS / f"{source.stem}.{digest[:16]}.o"
    if not made.exists():
        OBJECTS.mkdir(parents=True, exist_ok=True)
        unfinished = made.with_suffix(f".{os.getpid()}")  # others may compile it too
        _run("g++", *flags, "-c", source, "-o", unfinished)
        unfinished.replace(made)
    return made


@functools.cache
def _compiler() -> str:
    return _run("g++", "--version")


def _launchers(library: Path) -> dict[str, list[Launcher]]:
    """Every function launch_* in a namespace of a library, by its name."""
    symbols = re.findall(r"_ZN\w*launch_\w+", _run("nm", "-D", library))
    names = _run("c++filt", text="\n".join(symbols)).splitlines()
    found: dict[str, list[Launcher]] = {}
    for symbol, name in zip(symbols, names, strict=True):
        # char const* opbook::launch_x<types>(parameters)
        function = re.search(r"\w::(launch_\w+)(?:<.*>)?\((.*)\)$", name)
        # A launcher's lambda names it in the functions that take the lambda.
        if function is not None and "{lambda" not in name:
            launcher = Launcher(symbol, tuple(function[2].split(", ")))
            found.setdefault(function[1], []).append(launcher)
    return found


def _plain(argument):
    return argument.data_ptr() if isinstance(argument, Tensor) else argument


def _run(*command, text: str | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command], input=text, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stderr}")
    return done.stdout

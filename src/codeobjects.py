"""Compiles a GPU kernel without a GPU and reads what the compiler made of it.

nvcc makes a cubin for NVIDIA targets (``sm_90``), clang a code object for AMD targets
(``gfx942``), and Triton makes both. None needs a device. The figures come from the
compiler's own report and from the disassembly, so they hold for every machine that has
the target's chip. A tool of the book: it is not in the package that ``pip`` installs.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

# The book loads both by their paths, before the package is built.
toolchain = sys.modules.get("toolchain") or importlib.import_module("opbook.toolchain")

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx1100")

# Bytes of shared memory (LDS) that a block can have at most. From: CUDA C++ Programming
# Guide, "Technical Specifications per Compute Capability"; LLVM's AMDGPU.td,
# "AddressableLocalMemorySize".
SHARED_LIMITS = {"sm_80": 166912, "sm_90": 232448, "sm_100": 232448}
SHARED_LIMITS |= {"gfx90a": 65536, "gfx942": 65536, "gfx950": 163840, "gfx1100": 65536}

# As torch.utils.cpp_extension, so that a kernel compiles here as it does there.
_CUDA_DEFINES = ["-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__"]
_CUDA_DEFINES += ["-D__CUDA_NO_BFLOAT16_CONVERSIONS__", "-D__CUDA_NO_HALF2_OPERATORS__"]
_HIP_DEFINES = ["-D__HIP_PLATFORM_AMD__=1", "-DUSE_ROCM=1", "-DCUDA_HAS_FP16=1"]
_HIP_DEFINES += ["-D__HIP_NO_HALF_OPERATORS__=1", "-D__HIP_NO_HALF_CONVERSIONS__=1"]
_HIP_DEFINES += ["-DHIPBLAS_V2", "-DHIP_ENABLE_WARP_SYNC_BUILTINS=1"]
_UNKNOWN_TARGET = re.compile(
    r"is not defined for option 'gpu-arch|Unsupported gpu arch|invalid target ID"
)
# Instructions by meaning, spelled as SASS | AMD ISA. DPP and permlane move values
# between lanes too: the compiler may choose them for a shuffle. A SHFL whose lane comes
# from a register is shared code for warps that have diverged: a repetition.
_MEANINGS = {
    "shuffles": re.compile(
        r"SHFL\.\w+ \w+, \w+, \w+, 0x|ds_b?permute|ds_swizzle|_dpp\b|v_permlane"
    ),
    "barriers": re.compile(r"BAR\.SYNC|s_barrier(?!_wait)"),
    "wide_loads": re.compile(
        r"LDG\S*\.128|(?:global|buffer)_load_(?:lds_)?(?:dwordx4|b128)"
    ),
    "generic_accesses": re.compile(r"\b(?:LD|ST)(?:\.|\s)|flat_(?:load|store|atomic)"),
}
# A kernel's symbol, its figures (as Kernel names them) and its instructions.
_Found = tuple[str, dict[str, int | None], str]


class ToolMissing(RuntimeError):
    """A compiler or disassembler is not here; the message says what to install."""


class CompileError(RuntimeError):
    """The compiler refused the source; the message is its diagnostic."""


@dataclass(frozen=True)
class Kernel:
    """What the compiler made of one kernel. Sizes are bytes, counts are static.

    Attributes:
        name: Demangled, without namespaces and parameters.
        registers: Per thread: 32-bit registers (NVIDIA) or VGPRs (AMD).
        scalar_registers: SGPRs per wave, None on NVIDIA.
        spill_bytes: Scratch memory per thread: spilled registers and local arrays.
        shared_bytes: Shared memory (LDS) per block: the static part, or for a Triton
            kernel all that its launch asks for.
        shuffles: Instructions that move a value between lanes.
        barriers: Instructions on which the block waits for all its threads.
        wide_loads: 16-byte loads from global memory.
        generic_accesses: Loads and stores that find out their memory at run time.
        max_threads: Threads per block that the launch bounds allow.
    """

    name: str
    registers: int
    scalar_registers: int | None
    spill_bytes: int
    shared_bytes: int
    shuffles: int
    barriers: int
    wide_loads: int
    generic_accesses: int
    max_threads: int


@dataclass(frozen=True)
class CodeObject:
    """One source compiled for one target.

    Attributes:
        target: Read back from the file, not from the command.
        path: The cubin or the AMD code object.
        wave_size: Threads that run in lockstep: a warp, or a wave.
        kernels: Sorted by name.
        dependencies: Every file the compiler read, by its own record.
        compiler: Name and version.
        command: The command that was run.
        listings: Instructions of each kernel, by the kernel's name.
    """

    target: str
    path: Path
    wave_size: int
    kernels: tuple[Kernel, ...]
    dependencies: tuple[Path, ...]
    compiler: str
    command: tuple[str, ...]
    listings: dict[str, str] = field(repr=False)

    @property
    def assembly(self) -> str:
        """All kernels' instructions as one text: SASS or AMD ISA."""
        return "\n".join(f"{name}:\n{code}" for name, code in self.listings.items())


def compile_kernel(source: Path, target: str, out_dir: Path) -> CodeObject:
    """Compiles the kernels of `source` for one GPU architecture.

    Args:
        source: A `.cu` file, or the `.hip` file hipify made of it.
        target: An NVIDIA (`sm_90`) or AMD (`gfx942`) architecture.
        out_dir: Where the code object goes; made when missing.

    Raises:
        ToolMissing: A tool is not installed, or too old for the target.
        CompileError: The source does not compile.
    """
    if not re.fullmatch(r"sm_\d+[af]?|gfx\d+[\da-f]{2}", target):
        raise ValueError(
            f"expected a target such as sm_90 or gfx942, but got {target!r}"
        )
    source, out_dir = Path(source).resolve(), Path(out_dir).resolve()
    out_dir.mkdir(parents=True, exist_ok=True)
    nvidia = target.startswith("sm_")
    path = out_dir / f"{source.stem}.{target}.{'cubin' if nvidia else 'co'}"
    try:
        command = _nvcc(target) if nvidia else _clang(target, out_dir)
        report, dependencies = _compile(command, source, target, path)
        read = _read_cubin(path, report) if nvidia else _read_amd(path, command[0])
    except ToolMissing as missing:
        sys.audit("opbook.not_compiled", str(source), str(missing))
        raise
    target, wave_size, found = read
    listings = {_short_name(symbol): code for symbol, _, code in found}
    kernels = (
        Kernel(_short_name(symbol), **figures, **_counts(code))
        for symbol, figures, code in found
    )
    return CodeObject(
        target=target,
        path=path,
        wave_size=wave_size,
        kernels=tuple(sorted(kernels, key=lambda kernel: kernel.name)),
        dependencies=dependencies,
        compiler=_version(command[0]),
        command=tuple(command),
        listings=dict(sorted(listings.items())),
    )


def compile_triton(
    kernel,
    target: str,
    out_dir: Path,
    signature: dict[str, str],
    constants: dict[str, object],
    **options: int,
) -> CodeObject:
    """Compiles one Triton kernel for one GPU architecture.

    Args:
        kernel: What ``triton.jit`` made; of an autotuned kernel, its attribute `fn`.
        target: An NVIDIA (`sm_90`) or AMD (`gfx942`) architecture.
        out_dir: Where the code object goes; made when missing.
        signature: The type of each argument, as ``triton.tools.compile`` spells it:
            ``"*bf16:16"`` is a pointer, ``"i32:16"`` an integer, both multiples of 16.
        constants: The value of each ``tl.constexpr``, and of arguments to specialize.
        options: Of the launch: ``num_warps``, ``num_stages``.

    Raises:
        ToolMissing: Triton or nvdisasm is not installed.
        CompileError: The kernel does not compile, or was made to be interpreted.
    """
    if importlib.util.find_spec("triton") is None:
        raise ToolMissing("Triton not found: install triton")
    import triton
    from triton.compiler import ASTSource

    if not isinstance(kernel, triton.JITFunction):
        raise CompileError(
            "expected a kernel that triton.jit made with TRITON_INTERPRET unset, "
            f"but got {type(kernel).__name__}"
        )
    # [triton]
    types, attributes = {}, {}
    for place, name in enumerate(kernel.arg_names):
        if name in constants:
            types[name] = "constexpr"
            continue
        types[name], _, multiple = signature[name].partition(":")
        if multiple:
            attributes[(place,)] = [["tt.divisibility", int(multiple)]]
    nvidia = target.startswith("sm_")
    source = ASTSource(kernel, types, constants, attributes)
    try:
        made = triton.compile(source, triton_target(target), options)
    except Exception as error:  # Triton's passes raise what they like
        raise CompileError(f"{type(error).__name__}: {error}") from error
    # [/triton]
    name, kind = made.metadata.name, "cubin" if nvidia else "hsaco"
    out_dir = Path(out_dir).resolve()
    out_dir.mkdir(parents=True, exist_ok=True)
    path = out_dir / f"{name}.{target}.{kind}"
    path.write_bytes(made.asm[kind])
    # Of AMD's the text, since an installed llvm-objdump can be older than the chip.
    wave_size, figures, code = (
        _read_triton_cubin(path, name)
        if nvidia
        else _read_amd_text(made.asm["amdgcn"], name)
    )
    figures["shared_bytes"] = made.metadata.shared  # the file leaves it to the launch
    return CodeObject(
        target=target,
        path=path,
        wave_size=wave_size,
        kernels=(Kernel(name, **figures, **_counts(code)),),
        dependencies=(),
        compiler=f"triton {triton.__version__}",
        command=(),
        listings={name: code},
    )


def triton_target(target: str):
    """The ``GPUTarget`` of an architecture, with the size of its warps."""
    from triton.backends.compiler import GPUTarget

    if target.startswith("sm_"):
        return GPUTarget("cuda", int(target.removeprefix("sm_")), 32)
    return GPUTarget("hip", target, 64 if target.startswith("gfx9") else 32)


def _nvcc(target: str) -> list[str]:
    nvcc = _tool("nvcc", "the CUDA toolkit")
    flags = ["-std=c++20", "-O3", "-cubin", f"-arch={target}", "--resource-usage"]
    return [nvcc, *flags, "--expt-relaxed-constexpr", *_CUDA_DEFINES]


def _read_cubin(path: Path, report: str) -> tuple[str, int, list[_Found]]:
    """Reads ptxas's report for the figures and the disassembly for the rest."""
    sections = _sections(path)
    found = []
    for entry in report.split("Compiling entry function '")[1:]:
        symbol = entry.partition("'")[0]
        info, code = sections[f".nv.info.{symbol}"], sections[f".text.{symbol}"]
        stack = _number(r"(\d+) bytes stack frame", entry)
        figures = {
            "registers": _number(r"Used (\d+) registers", entry),
            "scalar_registers": None,
            "spill_bytes": max(stack, _number(r"(\d+) bytes spill stores", entry)),
            "shared_bytes": _number(r"(\d+) bytes smem", entry),
            "max_threads": _number(r"MAX_THREADS.*?\.word\s+(0x\w+)", info, 1024),
        }
        found.append((symbol, figures, _sass(code)))
    head = next(iter(sections.values()))
    target = re.search(r"^\s*\.target\s+(\w+)", head, re.MULTILINE)[1]
    return target, 32, found


def _read_triton_cubin(path: Path, symbol: str) -> tuple[int, dict, str]:
    """Reads all from the disassembly: Triton keeps ptxas's report to itself."""
    sections = _sections(path)
    info, code = sections[f".nv.info.{symbol}"], sections[f".text.{symbol}"]
    value = r".*?index@.*?\.word\s+(0x\w+)"
    figures = {
        "registers": _number(f"EIATTR_REGCOUNT{value}", sections[".nv.info"]),
        "scalar_registers": None,
        "spill_bytes": _number(f"EIATTR_FRAME_SIZE{value}", sections[".nv.info"]),
        "max_threads": _number(r"EIATTR_REQNTID.*?\.word\s+(0x\w+)", info, 1024),
    }
    return 32, figures, _sass(code)


def _sections(path: Path) -> dict[str, str]:
    """The disassembly of a cubin's sections by name, after a head with its target."""
    nvdisasm = _tool("nvdisasm", "the CUDA toolkit or the triton package")
    text = _run(nvdisasm, path)
    bar = "//--------------------- "
    return {part.partition(" ")[0]: part for part in text.split(bar)}


def _sass(section: str) -> str:
    """Labels and instructions: lines are these, with addresses, and directives."""
    lines = re.findall(r"^(\.L_\w+:)|^ *(/\*\w+\*/.*?) *;", section, re.MULTILINE)
    lines = (label or re.sub(r"/\*\w+\*/ *", "  ", line) for label, line in lines)
    return "\n".join(lines)


def _number(pattern: str, text: str, default: int = 0) -> int:
    found = re.search(pattern, text, re.DOTALL)
    return int(found[1], 0) if found else default


def _clang(target: str, out_dir: Path) -> list[str]:
    clang, *runtime = _amd_toolchain(target, out_dir)
    flags = ["-x", "hip", f"--offload-arch={target}", "--offload-device-only"]
    flags += ["--no-gpu-bundle-output", "-std=c++20", "-O3"]
    return [clang, *flags, *runtime, *_HIP_DEFINES]


def _read_amd(path: Path, clang: str) -> tuple[str, int, list[_Found]]:
    """Reads the file's own notes for the figures and the disassembly for the rest."""
    notes = _run(_llvm_tool(clang, "readelf"), "--notes", path)
    flags = ("-d", "--symbolize-operands", "--no-show-raw-insn", "--no-leading-addr")
    text = _run(_llvm_tool(clang, "objdump"), *flags, path)
    symbol = r"^<(?!L\d+>)"  # and not a label
    codes = dict(
        re.findall(rf"{symbol}(\S+)>:\n(.*?)(?={symbol}|\Z)", text, re.S | re.M)
    )
    found, wave_size = [], 64
    for note in re.split(r"^  - (?=\.)", notes, flags=re.MULTILINE)[1:]:
        note = dict(re.findall(r"^ *\.(\w+):\s+(\w+)$", note, re.MULTILINE))
        figures = _amd_figures(note)
        figures["shared_bytes"] = int(note["group_segment_fixed_size"])
        code = re.sub(r" *//.*|^\s*\n", "", codes[note["name"]], flags=re.MULTILINE)
        code = re.sub(r"(\s+(s_nop 0|s_code_end|\.\.\.))+\s*\Z", "", code)  # padding
        found.append((note["name"], figures, code.replace("\t", "  ")))
        wave_size = int(note["wavefront_size"])
    target = re.search(r"amdhsa\.target:\s+\S*?(gfx\w+)", notes)[1]
    return target, wave_size, found


def _read_amd_text(text: str, symbol: str) -> tuple[int, dict, str]:
    """Reads the assembly that Triton keeps, which ends in the same notes."""
    note = text[text.index(".amdgpu_metadata") :]
    note = dict(re.findall(r"^ *\.(\w+):\s+(\w+)$", note, re.MULTILINE))
    code = text.partition(f"\n{symbol}:")[2].partition("\n.Lfunc_end")[0]
    lines = re.findall(r"^(\.LBB\w+:)|^\t([a-z]\w+(?: [^;\n]*)?)", code, re.MULTILINE)
    code = "\n".join(label or f"  {line.rstrip()}" for label, line in lines)
    return int(note["wavefront_size"]), _amd_figures(note), code


def _amd_figures(note: dict[str, str]) -> dict[str, int | None]:
    return {
        "registers": int(note["vgpr_count"]),
        "scalar_registers": int(note["sgpr_count"]),
        "spill_bytes": int(note["private_segment_fixed_size"]),
        "max_threads": int(note["max_flat_workgroup_size"]),
    }


def _amd_toolchain(target: str, out_dir: Path) -> list[str]:
    """Finds a clang for AMD and the flags that lead it to headers and bitcode."""
    clang, rocm = _tool("clang", "ROCm, or the package clang-19"), toolchain.rocm_home()
    if Path(clang).is_relative_to(rocm):
        return [clang, f"--rocm-path={rocm}"]
    bitcode = toolchain.hip_bitcode()
    if bitcode is None:
        raise ToolMissing(
            "HIP headers or bitcode not found: "
            "install ROCm, or the packages rocm-device-libs and libamdhip64-dev"
        )
    bitcode = _complete_bitcode(clang, bitcode, target, out_dir / "bitcode")
    found = ["--hip-path=/usr", f"--rocm-device-lib-path={bitcode}"]
    return [clang, *found, "-Wno-linker-warnings"]


def _complete_bitcode(clang: str, bitcode: Path, target: str, folder: Path) -> Path:
    """Links the device library and adds the constant that names the architecture.

    A distribution's library can be older than the compiler; all that it lacks for a
    new chip is this one file.
    """
    folder.mkdir(exist_ok=True)
    for shipped in bitcode.glob("*.bc"):
        with contextlib.suppress(FileExistsError):
            (folder / shipped.name).symlink_to(shipped)
    constant = folder / f"oclc_isa_version_{target[3:]}.bc"
    if not constant.exists():
        major, minor, step = target[3:-2], target[-2], target[-1]  # 9, 0, a
        version = int(major) * 1000 + int(minor) * 100 + int(step, 16)
        ir = (
            'target triple = "amdgcn-amd-amdhsa"\n'
            "@__oclc_ISA_version = linkonce_odr protected local_unnamed_addr "
            f"addrspace(4) constant i32 {version}, align 4\n"
        )
        to_bitcode = ("-target", "amdgcn-amd-amdhsa", "-nogpulib", "-emit-llvm")
        with tempfile.TemporaryDirectory(dir=folder) as own:  # others may be at it too
            made = Path(own, constant.name)
            _run(clang, *to_bitcode, "-c", "-x", "ir", "-", "-o", made, text=ir)
            made.replace(constant)
    return folder


def _compile(
    command: list[str], source: Path, target: str, path: Path
) -> tuple[str, tuple[Path, ...]]:
    """Completes and runs `command`; returns the compiler's report and its inputs."""
    torch = importlib.util.find_spec("torch")
    if torch is None:
        raise ToolMissing("PyTorch's headers not found: install torch")
    include = Path(torch.submodule_search_locations[0], "include")
    depfile = path.with_suffix(f"{path.suffix}.d")
    command += [f"-I{folder}" for folder in (source.parents[1], include)]
    command += ["-MD", "-MF", str(depfile), str(source), "-o", str(path)]
    try:
        report = _run(*command, cwd=path.parent)
    except CompileError as error:
        if _UNKNOWN_TARGET.search(str(error)):
            compiler = f"{_version(command[0])} cannot compile for {target}"
            raise ToolMissing(f"{compiler}: install another version") from None
        raise
    names = shlex.split(depfile.read_text().partition(": ")[2].replace("\\\n", " "))
    return report, tuple(sorted({Path(path.parent, name).resolve() for name in names}))


def _counts(code: str) -> dict[str, int]:
    return {what: len(pattern.findall(code)) for what, pattern in _MEANINGS.items()}


@functools.cache
def _short_name(symbol: str) -> str:
    """Demangles: ``_ZN..`` to ``rms_norm_kernel<Half, float, 8>``."""
    demangler = toolchain.find("c++filt")
    if demangler is None:
        return symbol
    name = _run(demangler, symbol).strip().replace("(anonymous namespace)::", "")
    name = re.sub(r"(?<=[\w>])\(.*|^void ", "", name)  # but keep <(bool)1>
    return re.sub(r"\b\w+::", "", name)


def _tool(name: str, source: str) -> str:
    return _found(name, toolchain.find(name), source)


def _llvm_tool(clang: str, name: str) -> str:
    source = f"the package llvm{re.search(r'(-[0-9]+)?$', clang)[0]}"
    return _found(f"llvm-{name}", toolchain.llvm_tool(clang, name), source)


def _found(name: str, path: str | None, source: str) -> str:
    if path is None:
        raise ToolMissing(f"{name} not found: install {source}")
    return path


@functools.cache
def _version(compiler: str) -> str:
    text = _run(compiler, "--version")
    found = re.search(r"\bV?(\d+\.\d+\.\d+)", text)
    return f"{Path(compiler).name} {found[1] if found else text.splitlines()[0]}"


def _run(*command: str | Path, text: str | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run(
        list(map(str, command)), input=text, cwd=cwd, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise CompileError(done.stderr.strip() or done.stdout.strip())
    return done.stdout + done.stderr

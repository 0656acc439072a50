"""What the GPU compilers make of every kernel, checked without a GPU."""

import functools
import math
import re
from pathlib import Path
from typing import NamedTuple

import pytest

import codeobjects
from proof import build

CSRC = Path(__file__).parents[1] / "csrc"
SOURCES = sorted(CSRC.glob("*/*.cu"))
BYTES = {"Half": 2, "BFloat16": 2, "float": 4, "double": 8}
BYTES |= {"char": 1, "short": 2, "int": 4, "long": 8}  # unsigned


class Chip(NamedTuple):
    """Limits of one block on one kind of chip."""

    wave_size: int
    registers: int  # 32-bit registers that one block can spread over its threads
    shared_bytes: int  # static; more needs an opt-in at launch
    has_clusters: bool = False


AMPERE = Chip(wave_size=32, registers=65536, shared_bytes=49152)
NVIDIA = AMPERE._replace(has_clusters=True)
# A block's waves share four SIMDs, of 512 (CDNA) or 1536 (RDNA 3) registers per lane.
CDNA = Chip(wave_size=64, registers=4 * 512 * 64, shared_bytes=65536)
RDNA = Chip(wave_size=32, registers=4 * 1536 * 32, shared_bytes=65536)


class Needs(NamedTuple):
    """What a correct kernel contains, on any chip."""

    reductions: int  # over a warp, by xor shuffles
    barriers: int
    wide_loads: int  # at least, where the instantiation is vectorized
    kept_loads: int = 0  # instead, for each vector that a thread keeps, if it keeps any
    repeats: bool = False  # barriers in a loop, which a compiler may unroll
    # 16-byte stores, where rows begin anywhere: at least, for each kept vector if any
    wide_stores: int = 1


# By name, and by the first two numbers among the template arguments where they matter.
# A kernel that is not listed is held to the general rules alone.
NEEDS = {
    "elementwise_kernel": Needs(reductions=0, barriers=0, wide_loads=1),
    # One reduction of the three is for rows that are a part of a warp.
    "rms_norm_kernel": Needs(3, barriers=1, wide_loads=3, kept_loads=2),
    "rms_norm_two_pass_kernel": Needs(2, barriers=1, wide_loads=3),
    "rms_norm_few_rows_kernel": Needs(2, barriers=1, wide_loads=3),
    "rms_norm_cluster_kernel": Needs(
        2, barriers=1, wide_loads=12, repeats=True, wide_stores=4
    ),
    "rms_norm_backward_few_rows_kernel": Needs(2, barriers=1, wide_loads=3),
    # Short rows, long ones, and those of a cluster.
    "rms_norm_backward_kernel 2 1": Needs(1, barriers=2, wide_loads=6, wide_stores=4),
    "rms_norm_backward_kernel 4 1": Needs(
        2, barriers=3, wide_loads=12, repeats=True, wide_stores=8
    ),
    "rms_norm_backward_kernel 4 8": Needs(
        2, barriers=1, wide_loads=12, repeats=True, wide_stores=8
    ),
    "rms_norm_input_gradient_kernel": Needs(reductions=2, barriers=1, wide_loads=12),
}
# From and to global memory, as SASS or AMD ISA.
BYTE_LOAD = re.compile(r"LDG\S*\.[US]8\b|load_(?:d16_)?(?:hi_)?(?:[us]byte|[ui]8)")
WIDE_STORE = re.compile(r"STG\S*\.128\b|global_store_(?:dwordx4|b128)\b")


def chip_of(target: str) -> Chip:
    if target.startswith("sm_"):
        return NVIDIA if int(target.removeprefix("sm_")) >= 90 else AMPERE
    return CDNA if target.startswith("gfx9") else RDNA


def faults(code: codeobjects.CodeObject, target: str) -> list[str]:
    """Says everything that is wrong with a code object, in words."""
    chip = chip_of(target)
    found = [f"{code.path} has no kernel"] if not code.kernels else []
    if (code.target, code.wave_size) != (target, chip.wave_size):
        found.append(f"built for {code.target} with waves of {code.wave_size}")
    for kernel in code.kernels:
        kernels_faults = kernel_faults(kernel, code.listings[kernel.name], chip)
        found += [f"{kernel.name}: {fault}" for fault in kernels_faults]
    return found


def shares_a_row(function: str, numbers: list[int]) -> bool:
    """Whether a cluster of blocks shares a row."""
    is_backward = function == "rms_norm_backward_kernel"
    return function == "rms_norm_cluster_kernel" or (is_backward and numbers[1] > 1)


def kernel_faults(kernel: codeobjects.Kernel, listing: str, chip: Chip) -> list[str]:
    words = re.findall(r"\w+", kernel.name)
    function, *arguments = [word for word in words if word != "unsigned"]
    types = [argument for argument in arguments if argument in BYTES]
    numbers = [int(word) for word in arguments if word.isdigit()]
    form = " ".join([function, *map(str, numbers[:2])])
    needs = NEEDS.get(form) or NEEDS.get(function)
    if shares_a_row(function, numbers) and not chip.has_clusters:
        needs = None  # it is not launched there, and half of it is not compiled
    steps = int(math.log2(chip.wave_size))
    # A shuffle moves 32 bits: a sum of doubles takes two per step.
    steps *= 2 if types[:1] == ["double"] else 1
    found = []
    if needs and kernel.shuffles != needs.reductions * steps:
        found.append(f"{kernel.shuffles} shuffles, not {needs.reductions * steps}")
    if kernel.shuffles % steps:
        found.append(f"{kernel.shuffles} shuffles leave a warp's sum unfinished")
    extra_barriers = kernel.barriers - needs.barriers if needs else 0
    if extra_barriers < 0 or (extra_barriers and not needs.repeats):
        found.append(f"{kernel.barriers} barriers, not {needs.barriers}")
    sizes = [BYTES[argument] for argument in types]
    if byte_loads := len(BYTE_LOAD.findall(listing)) * (1 not in sizes):
        found.append(f"{byte_loads} loads of one byte")
    if types[:1] != ["double"] and (roots := listing.count("v_rsq_f64")):
        found.append(f"{roots} square roots in fp64")
    if kernel.shared_bytes and not kernel.barriers:
        found.append("shared memory without a barrier")
    # Rows that begin anywhere need more registers, and some spill.
    flags = [word == "true" for word in arguments if word in ("true", "false")]
    is_aligned = flags[-1] if flags else True
    # With an addition, the gradients of fp16 take two registers more than there are.
    takes_most = form == "rms_norm_backward_kernel 4 1" and types[0] == "Half"
    allowed = 8 if takes_most and flags[0] else 0
    if is_aligned and kernel.spill_bytes > allowed:
        found.append(f"spills {kernel.spill_bytes} bytes per thread")
    if kernel.generic_accesses:
        found.append(f"{kernel.generic_accesses} accesses through generic pointers")
    if kernel.registers * kernel.max_threads > chip.registers:
        found.append(f"{kernel.registers} registers x {kernel.max_threads} threads")
    if kernel.shared_bytes > chip.shared_bytes:
        found.append(f"{kernel.shared_bytes} bytes of shared memory")
    # Its last number is the width of a vector.
    if is_aligned and function == "rms_norm_kernel" and sizes[0] * numbers[-1] < 16:
        return found
    by_element = "few_rows" in function and not is_aligned
    if needs and not is_aligned and not by_element:
        if not kernel.wide_loads and sizes[0] == 2:
            found.append("no 16-byte loads of the vectors inside a row")
        wide_stores = needs.wide_stores
        if needs.kept_loads and numbers[0]:
            wide_stores *= numbers[0]
        stores = len(WIDE_STORE.findall(listing))
        if stores < wide_stores and sizes[0] == 2:
            found.append(f"{stores} 16-byte stores, not {wide_stores}")
    elif needs:
        wide = not by_element and (bool(flags) or sizes[0] * numbers[-1] == 16)
        kept_loads = needs.kept_loads + ("Residual" in arguments)
        wide_loads = needs.wide_loads
        if needs.kept_loads and numbers[0]:
            wide_loads = kept_loads * numbers[0]
        if kernel.wide_loads < wide_loads * wide:
            found.append(f"{kernel.wide_loads} 16-byte loads, not {wide_loads}")
        if kernel.wide_loads and not wide:
            found.append("16-byte loads from addresses that need not be aligned")
    return found


def compile_or_skip(source: Path, target: str, folder: Path) -> codeobjects.CodeObject:
    try:
        return codeobjects.compile_kernel(source, target, folder)
    except codeobjects.ToolMissing as missing:
        pytest.skip(str(missing))


def read(made: dict) -> codeobjects.CodeObject:
    """The code object that ``asdict`` made this of."""
    return codeobjects.CodeObject(
        **made
        | {
            "path": Path(made["path"]),
            "kernels": tuple(codeobjects.Kernel(**each) for each in made["kernels"]),
            "dependencies": tuple(map(Path, made["dependencies"])),
            "command": tuple(made["command"]),
        }
    )


@functools.cache
def compiled(source: Path, target: str) -> codeobjects.CodeObject:
    """What `python -m proof` has compiled of this source, or compiles now."""
    try:
        return read(build.code_object(source, target))
    except codeobjects.ToolMissing as missing:
        pytest.skip(str(missing))


# The others compile for minutes.
QUICK = [(CSRC / "neg/neg.cu", target) for target in ("sm_90", "gfx942")]
EACH = [(source, target) for source in SOURCES for target in codeobjects.TARGETS]


def with_all_but_quick(cases: list) -> list:
    return [
        pytest.param(*case, marks=() if case in QUICK else pytest.mark.all)
        for case in cases
    ]


@pytest.mark.parametrize(
    ("source", "target"), with_all_but_quick(EACH), ids=lambda part: Path(part).stem
)
def test_the_compiler_made_what_the_kernel_means(source, target):
    assert faults(compiled(source, target), target) == []


@pytest.mark.parametrize(
    ("source", "target"),
    with_all_but_quick([case for case in EACH if case[1] == "gfx942"]),
    ids=lambda part: Path(part).stem,
)
def test_dependencies_are_the_compilers_own_record(source, target):
    read = compiled(source, target).dependencies
    assert source in read
    assert CSRC / "portable.h" in read
    assert all(path.is_file() for path in read)


def test_a_missing_tool_is_named_with_its_remedy(tmp_path, monkeypatch):
    for variable in ("PATH", "CUDA_HOME", "ROCM_PATH"):
        monkeypatch.setenv(variable, str(tmp_path))
    with pytest.raises(codeobjects.ToolMissing, match=r"^nvcc not found: install"):
        codeobjects.compile_kernel(SOURCES[0], "sm_90", tmp_path)
    with pytest.raises(codeobjects.ToolMissing, match=r"^clang not found: install"):
        codeobjects.compile_kernel(SOURCES[0], "gfx942", tmp_path)


def test_a_compilers_diagnostic_is_passed_on(tmp_path):
    source = tmp_path / "csrc" / "broken.cu"
    source.parent.mkdir()
    source.write_text("int f() { return undeclared; }\n")
    for target in ("sm_90", "gfx942"):
        with pytest.raises(codeobjects.CompileError, match="undeclared"):
            compile_or_skip(source, target, tmp_path)


def test_an_unknown_target_is_refused(tmp_path):
    with pytest.raises(ValueError, match="but got 'compute_942'"):
        codeobjects.compile_kernel(SOURCES[0], "compute_942", tmp_path)

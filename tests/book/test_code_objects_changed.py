"""The checks of test_code_objects on sources that a fault or hipify has changed.

A file of their own: they compile for long, and pytest-xdist gives a file to a worker.
"""

import re
import shutil
from pathlib import Path

import pytest

from test_code_objects import CSRC, SOURCES, compile_or_skip, faults

pytestmark = pytest.mark.all  # it compiles for minutes
# Each plants a fault: in this file, what the expression matches is replaced.
MUTANTS = {
    "half the shuffles": (
        "block_sum.h",
        "mask = kWarpSize / 2",
        "mask = kWarpSize / 4",
    ),
    "no barrier": ("block_sum.h", r"__syncthreads\(\);(?=\s+return)", ""),
    "32 lanes everywhere": ("portable.h", "kWarpSize = 64;", "kWarpSize = 32;"),
    "alignment not promised": (
        "vectors.h",
        r"struct alignas\(.*\) Vector",
        "struct Vector",
    ),
    "rows copied by bytes": (
        "rms_norm/rms_norm_backward.h",
        r"inputs\[k\] = pack\(\*columns.at\(row_x, i\)\),",
        "__builtin_memcpy(&inputs[k], row_x + 8 * i, sizeof(inputs[k])),",
    ),
    "stores joined by nvcc": (
        "rms_norm/columns.h",
        r"return store_at_once\((.*), vector\);",
        r"*\1 = vector; return;",
    ),
    "stores joined by clang": ("vectors.h", r'  asm volatile\("" ::: "memory"\);', ""),
}
# One is enough to notice a fault in, and each takes a second or two to compile.
ALL_INSTANCES = r"OPBOOK_FOR_INPUT_AND_WEIGHT\(OPBOOK_INSTANTIATE\)"
ONE_INSTANCE = "OPBOOK_INSTANTIATE(c10::Half, c10::Half)"


def replace(pattern: str, replacement: str, file: Path) -> int:
    """Replace what matches in a file; return how many times it did."""
    text, times = re.subn(pattern, replacement, file.read_text())
    file.write_text(text)
    return times


@pytest.mark.parametrize(
    ("mutant", "source", "target", "complaint"),
    [
        ("half the shuffles", "rms_norm", "sm_90", "8 shuffles, not 10"),
        ("half the shuffles", "rms_norm", "gfx942", "15 shuffles, not 18"),
        ("no barrier", "rms_norm", "sm_90", "0 barriers, not 1"),
        ("no barrier", "rms_norm", "gfx942", "0 barriers, not 1"),
        ("32 lanes everywhere", "rms_norm", "gfx942", "15 shuffles, not 18"),
        ("alignment not promised", "rms_norm", "sm_90", "0 16-byte loads, not 3"),
        ("no barrier", "rms_norm_backward", "gfx942", "2 barriers, not 3"),
        ("rows copied by bytes", "rms_norm_backward", "sm_90", "loads of one byte"),
        ("stores joined by nvcc", "rms_norm", "sm_90", "0 16-byte stores, not 4"),
        (
            "stores joined by nvcc",
            "rms_norm_backward",
            "sm_90",
            "0 16-byte stores, not 1",
        ),
        ("stores joined by clang", "rms_norm", "gfx942", "0 16-byte stores, not 1"),
    ],
)
def test_a_planted_fault_is_noticed(tmp_path, mutant, source, target, complaint):
    csrc = shutil.copytree(CSRC, tmp_path / "csrc")
    file, pattern, replacement = MUTANTS[mutant]
    assert replace(pattern, replacement, csrc / file) == 1
    copy = csrc / "rms_norm" / f"{source}.cu"
    assert replace(ALL_INSTANCES, ONE_INSTANCE, copy) == 1
    code = compile_or_skip(copy, target, tmp_path)
    found = faults(code, target)
    assert any(complaint in fault for fault in found), found


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_hipified_source_compiles_for_amd(tmp_path, source):
    """On ROCm, CUDAExtension compiles what hipify made of the source."""
    csrc = shutil.copytree(CSRC, tmp_path / "csrc")
    copy = csrc / source.relative_to(CSRC)
    replace(ALL_INSTANCES, ONE_INSTANCE, copy)
    from torch.utils.hipify import hipify_python  # which takes half a second

    made = hipify_python.hipify(
        project_directory=str(csrc),
        output_directory=str(csrc),
        includes=[str(csrc / "*")],
        extra_files=[str(copy)],
        is_pytorch_extension=True,
        hipify_extra_files_only=True,
        show_progress=False,
    )
    hip = Path(made[str(copy)].hipified_path)
    assert hip.suffix == ".hip"
    assert faults(compile_or_skip(hip, "gfx942", tmp_path), "gfx942") == []

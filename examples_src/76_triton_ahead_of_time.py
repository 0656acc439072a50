"""Compile Triton kernels for GPUs you do not have
==================================================

Triton compiles for any chip it knows, on any machine. So you can read how many
registers and how much shared memory a kernel takes, whether it spills, and which
instructions it has, without the chip. Compile kernels of this project for three NVIDIA
and three AMD chips and look.

It needs torch, triton, numpy and opbook. Triton brings the disassembler.

.. topics:: 25 28 45 85
"""

import importlib.util
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "0"  # a kernel made to be interpreted has no code
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # a * b + c may round once
if importlib.util.find_spec("triton") is None:
    print("skipped: needs triton (pip install triton numpy)")
    sys.exit(77)

import triton
import triton.language as tl

try:
    from codeobjects import (
        SHARED_LIMITS,
        CodeObject,
        ToolMissing,
        compile_triton,
    )
    from opbook.triton.linear import CONFIGS, linear_kernel
    from opbook.triton.rms_norm import rms_norm_backward_kernel, rms_norm_kernel
except ImportError as error:
    print(f"skipped: needs opbook of this book's repository, on PYTHONPATH: {error}")
    sys.exit(77)

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950")
FOLDER = Path(tempfile.mkdtemp())

# %%
# A launch tells the compiler the type of each argument. With no launch, you do:
# ``"*bf16:16"`` is a pointer to bf16 at a multiple of 16 bytes, ``"i32:16"`` an integer
# that 16 divides. You also name the block sizes, the number of warps, and the stages.

TYPES = dict.fromkeys(("a", "b", "bias", "input", "weight", "output"), "*bf16:16")
TYPES |= {"grad": "*bf16:16", "grad_input": "*bf16:16", "partial": "*fp32:16"}
TYPES |= {"rrms": "*fp32:16", "eps": "fp32", "rows": "i32", "rows_per_chunk": "i32"}
TYPES |= {"means": "*fp32:16"}
TYPES |= dict.fromkeys(("M", "N", "K", "a_m", "b_n", "hidden"), "i32:16")
TYPES |= {"bucket": "i32"}
ROW = {"ROWS": 1, "BLOCK": 4096, "HAS_WEIGHT": True}
FORWARD, BACKWARD = ROW | {"PIECES": 1}, ROW | {"ONE_BLOCK": True}


def compile_matmul(target: str, config: triton.Config) -> CodeObject:
    """Compile one config: an autotuned kernel is as many kernels as it has configs."""
    constants = {
        "a_k": 1,
        "b_k": 1,
        "HAS_BIAS": False,
        "GELU": False,
        "SPLITS": 1,
        "TMA": False,
        **config.kwargs,
    }
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    kernel = linear_kernel.fn  # the tuner itself has no source
    return compile_triton(kernel, target, FOLDER, TYPES, constants, **options)


MAKE = {
    "rms_norm": lambda target: compile_triton(
        rms_norm_kernel, target, FOLDER, TYPES, FORWARD, num_warps=8
    ),
    "its backward": lambda target: compile_triton(
        rms_norm_backward_kernel, target, FOLDER, TYPES, BACKWARD, num_warps=8
    ),
    "matmul": lambda target: compile_matmul(target, CONFIGS[0]),
}
try:
    code = {(name, to): make(to) for name, make in MAKE.items() for to in TARGETS}
except ToolMissing as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
print(len(code), "code objects by", code["matmul", "sm_90"].compiler)

# %%
# Here is a table for each figure. Registers and spilled bytes are per thread, shared
# memory is per block.


def table(title: str, figure, names=tuple(MAKE)) -> None:
    """Print one figure of each kernel for each target."""
    print(f"\n{title:14}" + "".join(f"{target:>9}" for target in TARGETS))
    for name in names:
        figures = [figure(code[name, target]) for target in TARGETS]
        print(f"{name:14}" + "".join(f"{value:9}" for value in figures))


for field in ("registers", "spill_bytes", "shared_bytes", "wide_loads", "max_threads"):
    table(field, lambda made, field=field: getattr(made.kernels[0], field))

# %%
# No kernel of these tables spills. Compare the last two tables: every kernel loads 16
# bytes at a time, but on the AMD chips it has half as many loads in its code, or fewer.
# The same number of warps is twice as many threads there, so each thread has half the
# elements. A number of warps that was tuned on one chip is not tuned for the other.
#
# Triton wants the size of a warp beside the target: ``GPUTarget("hip", "gfx942", 64)``.
# If you give it a wrong size, this version takes the right one:

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def total(x, y, BLOCK: tl.constexpr):
    """Sum of one block."""
    tl.store(y, tl.sum(tl.load(x + tl.arange(0, BLOCK))))


types = {"x": "*fp32", "y": "*fp32", "BLOCK": "constexpr"}
for lanes in (64, 32):
    target = GPUTarget("hip", "gfx942", lanes)
    text = triton.compile(ASTSource(total, types, {"BLOCK": 64}), target).asm["amdgcn"]
    got = re.search(r"wavefront_size: +(\d+)", text)[1]
    print(f"asked for {lanes} lanes, got {got}")

# %%
# Count the instructions of the matrix product. One matrix instruction multiplies two
# tiles, and with larger tiles a kernel needs fewer of them: compare ``sm_80`` with
# ``sm_90``, and ``gfx942`` with ``gfx950``.

MATRIX = r"[HQ]G?MMA|UTC\w*MMA|v_s?mfma|v_wmma"
MIX = {
    "matrix": MATRIX,
    "global memory": r"LDG|STG|UTMALDG|(?:global|buffer)_(?:load|store)",
    "shared memory": r"LDS|STS|ds_(?:read|write|load|store)",
    "everything": r"(?m)^  ",
}
for kind, pattern in MIX.items():
    table(kind, lambda made, p=pattern: len(re.findall(p, made.assembly)), ["matmul"])
print()
for target in TARGETS:
    found = re.findall(rf"\S*(?:{MATRIX})\S*", code["matmul", target].assembly)
    print(f"{target:8}", *(f"{n:3} x {name}" for name, n in Counter(found).items()))

# %%
# Trap one: the compiler does not check shared memory. The largest of this project's own
# configs compiles for an MI300X, which cannot launch it. The autotuner drops such a
# config, but a launch with fixed sizes fails. So compare yourself:

for config in (CONFIGS[0], CONFIGS[-1]):
    takes = compile_matmul("gfx942", config).kernels[0].shared_bytes
    verdict = "fits" if takes <= SHARED_LIMITS["gfx942"] else "DOES NOT FIT"
    print(f"{tuple(config.kwargs.values())!s:15} takes {takes:6} bytes: {verdict}")
for (name, target), made in code.items():
    if made.kernels[0].shared_bytes > SHARED_LIMITS[target]:
        raise RuntimeError(f"{name} does not fit {target}")

# %%
# Trap two: fp8 with four bits of exponent is two formats. An MI300X multiplies the one
# that PyTorch calls ``float8_e4m3fnuz`` and Triton ``fp8e4b8``. If you give it the
# other format, ``float8_e4m3fn`` or ``fp8e4nv``, Triton converts every element to fp16
# first, and you see it only in the instruction:


@triton.jit
def fp8_dot(a, b, output, BLOCK: tl.constexpr):
    """Product of two square tiles."""
    line = tl.arange(0, BLOCK)
    place = line[:, None] * BLOCK + line[None, :]
    tl.store(output + place, tl.dot(tl.load(a + place), tl.load(b + place)))


for target, kind in (
    ("gfx942", "fp8e4b8"),
    ("gfx942", "fp8e4nv"),
    ("gfx950", "fp8e4nv"),
):
    types = {"a": f"*{kind}:16", "b": f"*{kind}:16", "output": "*fp32:16"}
    made = compile_triton(fp8_dot, target, FOLDER, types, {"BLOCK": 64}, num_warps=4)
    print(target, kind, *sorted(set(re.findall(r"v_mfma\w+", made.assembly))))

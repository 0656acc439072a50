"""Read what the compiler made of a kernel
=======================================

See how wide a kernel loads, how many registers it takes, and whether it spills. A
kernel spills if it keeps values in memory because it has no register for them. Compile
the RMSNorm kernel for an NVIDIA and for an AMD chip and look; this needs no GPU.

It needs torch, nvcc or clang, a clone of the repository, and matplotlib for the chart.

.. topics:: 23 28 85
"""

import importlib.util
import math
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCE = Path(sys.argv[0]).resolve().parents[1] / "csrc" / "rms_norm" / "rms_norm.cu"
if not SOURCE.is_file():
    print("skipped: needs csrc/rms_norm: run it in examples_src/ of a clone")
    sys.exit(77)
try:
    import codeobjects
except ImportError as error:
    print(f"skipped: needs opbook, built in a clone of its repository: {error}")
    sys.exit(77)
CHIPS = {"sm_90": "NVIDIA H100", "gfx942": "AMD MI300X"}

# %%
# nvcc compiles for NVIDIA chips, clang for AMD chips, here both at the same time. With
# only one of the two compilers, the script shows one half. The library has the kernels
# for six pairs of dtypes; three pairs are enough to look at, and compile sooner.

SHORTER = f"""
#include "{SOURCE.with_suffix(".h")}"
#undef OPBOOK_FOR_INPUT_AND_WEIGHT
#define OPBOOK_FOR_INPUT_AND_WEIGHT(INSTANTIATE) \\
  INSTANTIATE(c10::BFloat16, c10::BFloat16);     \\
  INSTANTIATE(float, float);                     \\
  INSTANTIATE(double, double)
#include "{SOURCE}"
"""
FOLDER = tempfile.TemporaryDirectory()
shorter = Path(FOLDER.name, SOURCE.name)
shorter.write_text(SHORTER)


def compile_for(target: str) -> codeobjects.CodeObject | codeobjects.ToolMissing:
    """Compile the kernels for a chip, or return what is missing for it."""
    try:
        return codeobjects.compile_kernel(shorter, target, Path(FOLDER.name, target))
    except codeobjects.ToolMissing as missing:
        return missing


code = {}
with ThreadPoolExecutor() as pool:
    for target, made in zip(CHIPS, pool.map(compile_for, CHIPS), strict=True):
        if isinstance(made, codeobjects.ToolMissing):
            print(f"{CHIPS[target]} ({target}) left out: {made}")
        else:
            code[target] = made
            print(f"{CHIPS[target]} ({target}): {made.compiler}")
if not code:
    print("skipped: needs nvcc or clang")
    sys.exit(77)

# %%
# One source makes many kernels, and each name below says which kernel it is:
#
# - ``Form<4, 1024>``: a thread keeps 4 vectors of a row in registers, and a block has
#   1024 threads at most.
# - The dtypes of the input and of the weight, and the number of elements in a vector.
#
# Most kernels also exist for rows that are not aligned to 16 bytes. The list leaves
# those kernels out. It also leaves two words out of the other names: ``true``, for
# aligned rows, and ``NoResidual``, which says that this is not ``add_rms_norm``.


def short(name: str) -> str:
    """A kernel's name without what all of them have."""
    return re.sub(", true|, NoResidual", "", name)


VECTOR = re.compile(r"(BFloat16|Half|float|double), \w+, (\d+), true")
BYTES = {"BFloat16": 2, "Half": 2, "float": 4, "double": 8}


def aligned(kernels: tuple) -> list:
    """The kernels with vectors of 16 bytes, for rows that begin where one begins."""
    found = [(kernel, VECTOR.search(kernel.name)) for kernel in kernels]
    return [kernel for kernel, v in found if v and BYTES[v[1]] * int(v[2]) == 16]


columns = ("registers", "spill_bytes", "shared_bytes", "shuffles", "barriers")
columns += ("wide_loads",)
for target, compiled in code.items():
    print(f"\n{target:62}" + "".join(f"{name:>13}" for name in columns))
    for kernel in aligned(compiled.kernels):
        figures = "".join(f"{getattr(kernel, name):13}" for name in columns)
        print(f"{short(kernel.name):62}{figures}")
        if kernel.spill_bytes or not kernel.wide_loads:
            sys.exit(f"{kernel.name} spills, or has no wide loads")

# %%
# A warp adds up its values in log2(lanes) shuffles: 5 for NVIDIA's 32 lanes, 6 for the
# 64 of this AMD chip. Code that assumes 32 lanes everywhere would show 5 for both
# chips, and on the AMD chip add up half of each warp. A shuffle moves 32 bits, so a
# ``double`` takes two. The kernels contain two or three such sums:
#
# - All kernels sum the values of each warp, and then the sums of the warps.
# - Those that have a form have a third sum, for rows that are shorter than a warp.

for target, compiled in code.items():
    steps = int(math.log2(compiled.wave_size))
    for kernel in aligned(compiled.kernels):
        if kernel.barriers:  # the kernels that reduce over a block
            words = 2 if "double" in kernel.name else 1
            sums = 3 if "Form" in kernel.name else 2
            if kernel.shuffles != sums * steps * words:
                sys.exit(f"{kernel.name} has {kernel.shuffles} shuffles")
    print(f"{target}: {compiled.wave_size} lanes, {steps} shuffles per sum")

# %%
# A row that fits the registers is loaded without a loop. For a longer row the kernel
# has a loop, in which it spends its time. The loop ends with a jump back to its label.
# Look for the load (``LDG.E.128``, ``global_load_dwordx4``), one multiply-add per
# element (``FFMA``, ``v_fmac_f32``; the first may be a multiplication), and one
# addition to the thread's sum. The other instructions compute the address and count.


def inner_loop(listing: str) -> list[str]:
    """The shortest loop of a kernel that holds a global load."""
    lines, starts, loops = listing.splitlines(), {}, []
    for number, line in enumerate(lines):
        if label := re.match(r"<?(\.?L\w+)>?:", line):
            starts[label[1]] = number
        jump = re.search(r"(?:BRA.*\(|s_c?branch\w* )(\.?L\w+)", line)
        if jump and jump[1] in starts:
            loops.append(lines[starts[jump[1]] : number + 1])
    loads = [loop for loop in loops if re.search("LDG|global_load", str(loop))]
    return min(loads, key=len)


for target, compiled in code.items():
    [listing] = [
        code
        for name, code in compiled.listings.items()
        if re.match(r"rms_norm_two_pass_kernel<float, float, 4, true", name)
    ]
    loop = inner_loop(listing)
    print(f"\n{CHIPS[target]} ({target}), {len(loop) - 1} instructions")
    print("\n".join(loop))

# %%
# Registers decide how many threads fit on a chip at once. A thread of a block of 1024
# may take 64 registers on the NVIDIA chip, and 128 on the AMD chip. The forms with two
# and three vectors are for short rows. They keep less and so take fewer registers, and
# many rows fit.

if importlib.util.find_spec("matplotlib") is None:
    print("no chart: needs matplotlib")
    sys.exit()

import matplotlib.pyplot as plt

GREY = "#808080"  # readable on white and on black
figure, axis = plt.subplots(figsize=(8, 9), facecolor="none", layout="constrained")
sides = {"sm_90": (-0.2, "#4c9f70"), "gfx942": (0.2, "#d9734e")}
for target, (shift, color) in sides.items():
    if target in code:
        kernels = aligned(code[target].kernels)
        kernels = [k for k in kernels if k.name.startswith("rms_norm_kernel")]
        registers = [kernel.registers for kernel in kernels]
        places = [place + shift for place in range(len(kernels))]
        bars = axis.barh(places, registers, 0.38, color=color, label=CHIPS[target])
        axis.bar_label(bars, padding=3, fontsize=8, color=GREY)
names = [short(kernel.name).removeprefix("rms_norm_kernel") for kernel in kernels]
axis.set_yticks(range(len(names)), names, family="monospace", fontsize=8)
axis.set_xlabel("registers per thread", color=GREY)
axis.set(xticks=[], ymargin=0.01, frame_on=False)
axis.tick_params(length=0, labelcolor=GREY)
axis.invert_yaxis()
figure.legend(frameon=False, labelcolor=GREY, loc="outside upper center", ncols=2)
plt.show()

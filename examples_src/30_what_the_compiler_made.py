"""Read what the compiler made of a kernel
=======================================

See how wide a kernel loads, how many registers it takes, and whether it spills. The
source does not say it, but the compiled code does, and compiling needs no GPU. Compile
the RMSNorm kernel for an NVIDIA and for an AMD chip and look.

It needs torch, nvcc or clang, a clone of the repository, and matplotlib for the chart.

.. topics:: 23 28 85
"""

import importlib.util
import math
import re
import sys
import tempfile
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
# nvcc compiles for NVIDIA chips, clang for AMD ones. A machine that has one of them
# shows that half.

code = {}
with tempfile.TemporaryDirectory() as folder:
    for target, chip in CHIPS.items():
        try:
            code[target] = codeobjects.compile_kernel(SOURCE, target, Path(folder))
            print(f"{chip} ({target}): {code[target].compiler}")
        except codeobjects.ToolMissing as missing:
            print(f"{chip} ({target}) left out: {missing}")
if not code:
    print("skipped: needs nvcc or clang")
    sys.exit(77)

# %%
# One source makes a kernel for each form, each pair of dtypes and each vector width. A
# form's first number is how many vectors of a row a thread keeps in registers, and its
# second is how many threads a block has at most. The kernel for few rows has its
# threads in the place of the form. The number after the dtypes is how many elements a
# thread loads at once: more than one makes 16-byte loads. Below, a name is without
# ``NoResidual``, which only says that this is not ``add_rms_norm``.


def short(name: str) -> str:
    """A kernel's name without what all of them have."""
    return name.replace(", NoResidual", "")


columns = ("registers", "spill_bytes", "shared_bytes", "shuffles", "barriers")
columns += ("wide_loads",)
for target, compiled in code.items():
    print(f"\n{target:62}" + "".join(f"{name:>13}" for name in columns))
    for kernel in compiled.kernels:
        figures = "".join(f"{getattr(kernel, name):13}" for name in columns)
        print(f"{short(kernel.name):62}{figures}")
        assert kernel.spill_bytes == 0
        vectorized = re.search(r", [248]>", short(kernel.name))
        assert (kernel.wide_loads > 0) == bool(vectorized)

# %%
# A warp adds up its values in log2(lanes) shuffles: 5 for NVIDIA's 32 lanes, 6 for the
# 64 of this AMD chip. A block adds up twice: its threads' values, then its warps' sums.
# In the kernel for few rows, each thread reads the warps' sums, so the second sum takes
# no shuffles. The other forms, except the one of eight vectors for long rows, have a
# third, for short rows that are a part of a warp. A shuffle moves 32 bits, so a double
# takes two. Code that assumes 32 lanes everywhere would show 5 for each sum here, and
# add up half of each wave.

for target, compiled in code.items():
    steps = int(math.log2(compiled.wave_size))
    for kernel in compiled.kernels:
        if kernel.barriers:  # the kernels that reduce over a block
            words = 2 if "double" in kernel.name else 1
            long_rows = re.search("cluster|Form<8", kernel.name)
            sums = 1 if "few_rows" in kernel.name else 2 if long_rows else 3
            assert kernel.shuffles == sums * steps * words
    print(f"{target}: {compiled.wave_size} lanes, {steps} shuffles per sum")

# %%
# A row that fits the registers is loaded without a loop. A longer one has a loop, which
# is where the time goes. It ends with a jump back to its label. Look for the load
# (``LDG.E.128``, ``global_load_dwordx4``), one multiply-add per element (``FFMA``,
# ``v_fmac_f32``; the first may be a multiplication), one addition to the thread's sum,
# and what is left: the address and the loop counter.


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
        if re.match(r"rms_norm_kernel<Form<0, .*float, float, 4", name)
    ]
    loop = inner_loop(listing)
    print(f"\n{CHIPS[target]} ({target}), {len(loop) - 1} instructions")
    print("\n".join(loop))

# %%
# Registers decide how many threads fit on a chip at once. Blocks of 1024 threads allow
# 64 on the NVIDIA chip and 128 on the AMD one. The forms with two, three and eight
# vectors have blocks of 256 threads at most. The first two are for short rows, many of
# which are to fit, so their launch bounds hold them to fewer registers. The last keeps
# a long row, and may take more.

if importlib.util.find_spec("matplotlib") is None:
    print("no chart: needs matplotlib")
    sys.exit()

import matplotlib.pyplot as plt

GREY = "#808080"  # readable on white and on black
figure, axis = plt.subplots(figsize=(8, 9), facecolor="none", layout="constrained")
sides = {"sm_90": (-0.2, "#4c9f70"), "gfx942": (0.2, "#d9734e")}
for target, (shift, color) in sides.items():
    if target in code:
        kernels = [k for k in code[target].kernels if k.name.startswith("rms_norm_ker")]
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

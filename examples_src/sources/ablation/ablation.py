"""Take one thing at a time out of the kernels of RMSNorm, and time what is left.

    python3 examples_src/sources/ablation/ablation.py

Each variant is a copy of csrc/ with one text replaced, compiled for bf16. A variant
whose result is wrong ends the run. Without a GPU, the copies are made and nothing is
timed.
"""

import ctypes
import json
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.append(str(ROOT / "benchmarks" / "gpu"))
import clock
import nvcc

BUILD = ROOT / "build" / "ablation"
ROUNDS = 41
EPS = 1e-6
FORWARD, BACKWARD = "rms_norm/rms_norm", "rms_norm/rms_norm_backward"
WHOLE = "all"
# [variants]
# What is taken out, and the texts that are replaced for it: (file, old, new).
VARIANTS = {
    WHOLE: [],
    "the kernel for few rows": [(f"{FORWARD}.h", "if (rows <= 256 &&", "if (false &&")],
    "the weight before the sum": [
        (f"{FORWARD}.h", "kAligned && std::is_empty_v<Added>;", "false;")
    ],
    "three vectors a thread": [
        (f"{FORWARD}.h", "if (vectors <= 512 && three_fit)", "if (false)")
    ],
    "narrow vectors": [
        (f"{FORWARD}.h", "if (narrow <= NarrowVectors::kVectors", "if (false")
    ],
    "rows that share a block": [
        (f"{FORWARD}.h", "std::min(kShortRowThreads, Form::kThreads)", "1"),
        (f"{BACKWARD}.cu", "(threads, kSharedThreads)", "(threads, 1)"),
    ],
    "clusters, forward": [(f"{FORWARD}.cu", "#if defined(OPBOOK_CLUSTERS)", "#if 0")],
    "whole vectors at the ends of rows": [
        ("rms_norm/columns.h", "kAligned || (row > 0", "kAligned || (false")
    ],
    "vectors of rows that begin anywhere": [
        ("rms_norm/columns.h", "kAligned || (row > 0", "kAligned || (false"),
        ("rms_norm/columns.h", "return is_inside_whole(i) &&", "return kAligned &&"),
    ],
    "vectors as they came": [
        ("vectors.h", 'asm volatile("" : "+r"(word));', ";"),
    ],
    "clusters, backward": [
        (
            f"{BACKWARD}.cu",
            "vectors <= 8192 && has_clusters",
            "false",
        )
    ],
    "the backward for few rows": [
        (f"{BACKWARD}.cu", "rows <= 256 && vectors", "false && vectors")
    ],
    "the backward for short rows": [
        (f"{BACKWARD}.cu", "vectors <= kShortKept * kMinWarpSize", "false")
    ],
    "the early launch": [
        (
            f"{BACKWARD}.cu",
            "if (has_clusters(kernel)) {\n    return Early",
            "if (false) {\n    return Early",
        ),
        (f"{BACKWARD}.h", "let_next_kernel_start();", ";"),
    ],
}
# [/variants]
# Tuned and untuned, short and long rows, few and many; the last begin anywhere.
SHAPES = [
    (1, 4096), (16, 4096), (64, 4096), (250, 8192), (777, 3584), (1670, 1152),
    (262144, 128), (100000, 576), (32768, 1024), (32768, 4096), (12345, 7168),
    (8192, 8192), (16384, 5120), (5000, 12288), (4096, 16384), (2048, 32768),
    (1002, 65536), (332655, 522), (10065, 7500), (2000, 20004), (67802, 643),
    (10065, 7503), (801, 7808), (8624, 1088), (382, 4032), (1067, 376),
    (116299, 70), (14911, 3074), (13341, 20120),
]  # fmt: skip


def changes(name: str, task: str) -> bool:
    """Whether a variant changes the kernels of a task: in others it shows noise."""
    files = [file for file, _, _ in VARIANTS[name]]
    if not files or {"rms_norm/columns.h", "vectors.h"} & set(files):
        return True
    return any(file.startswith(BACKWARD) == (task == "backward") for file in files)


def copy_of(name: str) -> Path:
    """The folder of a variant: csrc/ with its texts replaced."""
    folder = BUILD / name.replace(" ", "_").replace(",", "")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "csrc", folder)
    shutil.copy(HERE / "ablation.cu", folder)
    for file, old, new in VARIANTS[name]:
        text = (folder / file).read_text()
        if old not in text:
            raise LookupError(f"{name}: {file} has no {old!r}")
        (folder / file).write_text(text.replace(old, new))
    return folder


def calls(folder: Path, rows: int, tensors: dict[str, Tensor]) -> dict[str, Callable]:
    """The three tasks of a variant, each of which allocates its results."""
    library = folder / "ablation.so"
    launchers = nvcc.launchers(library)
    chunks = ctypes.CDLL(str(library)).backward_chunks
    chunks.restype = ctypes.c_int64
    x, other, weight, rrms = tensors.values()
    hidden = len(weight)
    launch = {
        task: partial(launchers[task], stream=torch.cuda.current_stream().cuda_stream)
        for task in ("forward", "add", "backward")
    }

    def forward() -> list[Tensor]:
        output = torch.empty_like(x)
        launch["forward"](x, weight, output, rows, hidden)
        return [output]

    def add() -> list[Tensor]:
        output, total = torch.empty_like(x), torch.empty_like(x)
        launch["add"](x, other, weight, output, total, rows, hidden)
        return [output, total]

    def backward() -> list[Tensor]:
        count = chunks(ctypes.c_int64(rows), ctypes.c_int64(hidden))
        partial_sums = torch.empty(count, hidden, device=x.device)
        dx, dw = torch.empty_like(x), torch.empty_like(weight)
        arguments = (other, x, weight, rrms, dx, partial_sums, dw)
        launch["backward"](*arguments, rows, hidden)
        return [dx, dw]

    return {"forward": forward, "add": add, "backward": backward}


def measure(folders: dict[str, Path], shape: tuple[int, int]) -> list[dict]:
    """Medians of each task and variant by both clocks; the results must agree."""
    rows, hidden = shape
    torch.manual_seed(0)
    x, other = (torch.randn(shape, device="cuda").bfloat16() for _ in range(2))
    weight = torch.randn(hidden, device="cuda").bfloat16()
    rrms = torch.rsqrt(x.float().square().mean(-1) + EPS)
    tensors = {"x": x, "other": other, "weight": weight, "rrms": rrms}
    variants = {name: calls(folder, rows, tensors) for name, folder in folders.items()}
    found = []
    for task in variants[WHOLE]:
        whole = variants[WHOLE][task]()
        turns = {
            name: made[task] for name, made in variants.items() if changes(name, task)
        }
        for run in turns.values():
            for result, wanted in zip(run(), whole, strict=True):
                torch.testing.assert_close(
                    result, wanted, rtol=2**-6, atol=2**-7 * wanted.abs().max().item()
                )
        for name, taken in clock.take_turns(turns, ROUNDS).items():
            times = {"clean": taken["median"], "dirty": taken["dirty median"]}
            found.append({"task": task, "shape": shape, "without": name, **times})
    return found


def ratios(rows: list[dict], name: str) -> list[tuple[float, str]]:
    """Times without something over the whole's, with the case, the largest first.

    Of the two clocks, the one that shows less counts.
    """
    whole = {
        (row["task"], row["shape"]): row for row in rows if row["without"] == WHOLE
    }
    found = []
    for row in rows:
        if row["without"] == name:
            task, shape = row["task"], row["shape"]
            with_it = whole[task, shape]
            ratio = min(row[kind] / with_it[kind] for kind in ("clean", "dirty"))
            found.append((ratio, f"{task} {shape[0]}x{shape[1]}"))
    return sorted(found, reverse=True)


def report(rows: list[dict]) -> None:
    """A line for each variant: how many cases it slows down by both clocks."""
    print(f"{len(SHAPES)} shapes, bf16, forward, add, backward; {ROUNDS} rounds")
    print("time without it over the time with it, by the clock that shows less\n")
    print(f"{'without':42}{'slower':>9}{'median':>9}{'largest':>9}  in")
    for name in VARIANTS:
        if name == WHOLE:
            continue
        found = ratios(rows, name)
        slower = sum(ratio >= 1.03 for ratio, _ in found)
        worst, case = found[0]
        middle = median(ratio for ratio, _ in found)
        mark = "*" if slower * 20 >= len(found) else " "
        count = f"{slower}/{len(found)}"
        print(f"{name:42}{count:>8}{mark}{middle:9.3f}{worst:9.3f}  {case}")


def main() -> None:
    """Build every variant, time all of them in turns, print and keep the results."""
    folders = {name: copy_of(name) for name in VARIANTS}
    if not clock.GPU:
        print(f"{len(folders)} variants made; to time them, a GPU is needed")
        return
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(compile_variant, folders.values()))
    rows = []
    with torch.no_grad():
        for shape in SHAPES:
            rows += measure(folders, shape)
    report(rows)
    if file := os.environ.get("RECORD_DATA"):
        Path(file).write_text(json.dumps({"rows": rows}))


def compile_variant(folder: Path) -> None:
    """Make the library of a variant."""
    nvcc.library(folder / "ablation.cu", folder, "-I", str(folder))


if __name__ == "__main__":
    main()

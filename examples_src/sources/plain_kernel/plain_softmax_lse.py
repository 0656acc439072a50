"""Time softmax_lse beside PyTorch, on a GPU: a thread for each row, and rows.h.

PYTHONPATH=benchmarks/gpu python3 examples_src/sources/plain_kernel/plain_softmax_lse.py
"""

import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import nvcc
import torch
from clock import medians, versions
from torch import Tensor

HERE = Path(__file__).resolve().parent
STARTER = HERE.parents[2] / "starter"
SHAPES = [(1048576, 64), (32768, 4096), (256, 65536)]
ROUNDS = 51


def formula(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Compute both results by PyTorch's operators."""
    return scores.softmax(-1), scores.float().logsumexp(-1)


def launchers() -> dict[str, Callable]:
    """Compile both kernels, each for the GPU at hand."""
    headers = [
        option
        for name in ("rows", "cpp")
        for option in ("-I", str(STARTER / name / "csrc"))
    ]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("plain_softmax_lse", "rows_softmax_lse"):
            library = nvcc.library(HERE / f"{name}.cu", Path(folder), *headers)
            found[name] = nvcc.launchers(library)[name]
    return found


def call(launch: Callable, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Compute both results by a kernel."""
    probs = torch.empty_like(scores)
    lse = scores.new_empty(len(scores), dtype=torch.float32)
    no_mask = scores.new_empty(0)  # whose address is null
    stream = torch.cuda.current_stream().cuda_stream
    launch(scores, no_mask, probs, lse, *scores.shape, 1.0, stream=stream)
    return probs, lse


def check(results: tuple[Tensor, Tensor], scores: Tensor) -> None:
    """A kernel that is fast and wrong is of no use."""
    probs, lse = formula(scores)
    torch.testing.assert_close(results[0], probs, rtol=2**-7, atol=1e-9)
    torch.testing.assert_close(results[1], lse, rtol=1e-5, atol=0)


def main() -> None:
    """Compare, and print a line for each shape."""
    warnings.simplefilter("ignore")  # Inductor says how it splits a sum
    launch = launchers()
    ways = {
        "eager": formula,
        "compiled": torch.compile(formula, dynamic=False),
        "a thread a row": partial(call, launch["plain_softmax_lse"]),
        "rows.h": partial(call, launch["rows_softmax_lse"]),
    }
    print(f"{versions()}; bf16, median microseconds of {ROUNDS} calls, cold caches\n")
    print(f"{'rows x columns':15}" + "".join(f"{name:>16}" for name in ways))
    for shape in SHAPES:
        scores = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        calls = {name: partial(way, scores) for name, way in ways.items()}
        for each in calls.values():
            check(each(), scores)
        times = medians(calls, ROUNDS)
        columns = "".join(f"{times[name]:16.1f}" for name in ways)
        print(f"{f'{shape[0]} x {shape[1]}':15}{columns}")


if __name__ == "__main__":
    main()

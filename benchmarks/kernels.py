"""Time functions of opbook beside eager PyTorch, here and now: kernels.py [NAME ...].

Which arguments a function gets, and what is eager's, its own test says: see
tests/registry.py. Without a name, every function is timed. The two take turns, with
cold caches, on the GPU if there is one that opbook has kernels for.
"""

import argparse
import itertools
import os
import sys
from pathlib import Path

import torch

import opbook

if not opbook.runs_on_gpu():
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the clock takes a GPU that it sees
for folder in ("benchmarks/gpu", "tests"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / folder))
import clock  # noqa: E402  found through the lines above

import registry  # noqa: E402
from eager import results  # noqa: E402

SHAPES = [(512, 4096), (8192, 1024)]
DTYPES = [torch.float32, torch.bfloat16]
# The budget is "no slower"; two timings of one function differ by up to this much.
NOISE = 1.05


def measure(name: str, rows: int, hidden: int, dtype: torch.dtype) -> dict[str, float]:
    """Microseconds of opbook and of eager, whose results are compared first."""
    torch.manual_seed(0)
    sample, function = registry.sample(name), getattr(opbook, name)
    sizes = {"rows": rows, "hidden": hidden, "features": hidden}

    def tensor(shape: list[int]) -> torch.Tensor:
        return torch.randn(shape).to(clock.DEVICE, dtype)

    args = sample.made(tensor, sizes)
    theirs = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    for one, other in zip(
        results(function(*args)), results(sample.eager(*theirs)), strict=True
    ):
        rtol = 2**-7 if dtype == torch.bfloat16 else 1e-5
        torch.testing.assert_close(one, other, rtol=rtol, atol=1e-5)
    return clock.medians(
        {"opbook": lambda: function(*args), "eager": lambda: sample.eager(*theirs)}
    )


def main() -> int:
    """Print the table; return 1 when a function is over its budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", default=registry.FUNCTIONS)
    names = parser.parse_args().names
    if unknown := {*names} - {*registry.FUNCTIONS}:
        parser.error(f"opbook has no {', '.join(sorted(unknown))}")
    print(clock.versions())
    if not clock.GPU:
        torch.set_num_threads(1)  # a second one makes the times of short calls jump
    print(
        f"{'function':14} {'shape':>9} {'dtype':>9} {'opbook us':>10} {'eager us':>9}"
    )
    over = 0
    with torch.inference_mode():
        for name, shape, dtype in itertools.product(names, SHAPES, DTYPES):
            times = measure(name, *shape, dtype)
            ratio = times["opbook"] / times["eager"]
            over += ratio > NOISE
            size, kind = "x".join(map(str, shape)), str(dtype).removeprefix("torch.")
            row = f"{name:14} {size:>9} {kind:>9} {times['opbook']:10.0f}"
            verdict = "pass" if ratio <= NOISE else "slower than eager"
            print(f"{row} {times['eager']:9.0f} {ratio:6.2f}  {verdict}", flush=True)
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())

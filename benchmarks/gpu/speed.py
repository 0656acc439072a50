"""Time opbook.rms_norm beside eager PyTorch and beside a copy of the same bytes.

Without a GPU, or without GPU kernels, it times the CPU kernels on smaller tensors.
"""

import os

import torch
import torch.nn.functional as F

import opbook

if not opbook.runs_on_gpu():
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the clock takes a GPU that it sees
from clock import DEVICE, DTYPE, GPU, ROUNDS, medians, versions

# Most rows of 4097 begin at addresses that are no multiple of 16 bytes.
GPU_SHAPES = [
    (1, 4096),
    (132, 4096),
    (2048, 4096),
    (16384, 4096),
    (16384, 4097),
    (524288, 128),
    (65536, 1024),
    (2048, 32768),
    (2048, 65536),
]
CPU_SHAPES = [(256, 4096), (256, 4097), (1024, 1024)]


def measure(shape: tuple[int, int]) -> tuple[int, dict]:
    """Bytes that must move at least, and microseconds of copy, eager and opbook."""
    x = torch.randn(shape, device=DEVICE, dtype=DTYPE)
    weight = torch.randn(shape[-1:], device=DEVICE, dtype=DTYPE)
    calls = {
        "copy": x.clone,  # allocates its result, as the others do
        "eager": lambda: F.rms_norm(x, shape[-1:], weight),
        "opbook": lambda: opbook.rms_norm(x, weight),
    }
    # A kernel that is fast and wrong is of no use.
    torch.testing.assert_close(
        calls["opbook"](), calls["eager"](), rtol=2**-7, atol=1e-5
    )
    return 2 * x.nbytes + weight.nbytes, medians(calls)


def main() -> None:
    """Print one row for each shape."""
    if not GPU:
        torch.set_num_threads(1)  # a second one makes the times of short calls jump
    shapes = GPU_SHAPES if GPU else CPU_SHAPES
    with torch.inference_mode():
        found = {shape: measure(shape) for shape in shapes}
    # Bytes in a microsecond are MB in a second.
    bandwidth = max(moved / times["copy"] for moved, times in found.values())
    print(versions())
    print(f"fastest copy {bandwidth / 1e3:.0f} GB/s; median of {ROUNDS}, cold cache")
    print("microseconds, and opbook's share of the fastest copy's bandwidth:")
    print(
        f"{'shape':>12} {'MB':>6} {'copy':>8} {'eager':>8} {'opbook':>8} {'share':>7}"
    )
    for shape, (moved, times) in found.items():
        name, megabytes = "x".join(map(str, shape)), moved / 1e6
        row = " ".join(f"{times[call]:8.1f}" for call in ("copy", "eager", "opbook"))
        share = moved / times["opbook"] / bandwidth
        print(f"{name:>12} {megabytes:6.1f} {row} {share:7.0%}")


if __name__ == "__main__":
    main()

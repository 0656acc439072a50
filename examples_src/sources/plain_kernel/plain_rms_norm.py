"""Time the plain kernels of RMSNorm beside eager PyTorch, on a GPU.

PYTHONPATH=benchmarks/gpu python3 examples_src/sources/plain_kernel/plain_rms_norm.py
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import nvcc
import torch
import torch.nn.functional as F
from clock import medians, versions
from torch import Tensor

SOURCE = Path(__file__).resolve().with_suffix(".cu")
SHAPES = [(256, 4096), (16384, 4096), (65536, 1024)]
EPS = 1e-6
ROUNDS = 51


def forward_calls(plain: Callable, x: Tensor, weight: Tensor) -> dict[str, Callable]:
    """Each returns the output; the plain one also saves rrms."""

    def plain_forward():
        y, rrms = torch.empty_like(x), x.new_empty(len(x), dtype=torch.float32)
        stream = torch.cuda.current_stream().cuda_stream
        plain(x, weight, y, rrms, *x.shape, EPS, stream=stream)
        return y

    return {
        "eager": lambda: F.rms_norm(x, weight.shape, weight, EPS),
        "plain": plain_forward,
    }


def gradient_calls(plain: Callable, x: Tensor, weight: Tensor) -> dict[str, Callable]:
    """Each returns the gradients of x and of the weight."""
    grad = torch.randn_like(x)
    rrms = torch.rsqrt(x.float().square().mean(-1) + EPS)
    leaves = x.clone().requires_grad_(), weight.clone().requires_grad_()
    output = F.rms_norm(leaves[0], weight.shape, leaves[1], EPS)

    def plain_gradients():
        found = torch.empty_like(x), torch.empty_like(weight)
        stream = torch.cuda.current_stream().cuda_stream
        plain(grad, x, weight, rrms, *found, *x.shape, stream=stream)
        return found

    return {
        "eager": lambda: torch.autograd.grad(output, leaves, grad, retain_graph=True),
        "plain": plain_gradients,
    }


def check(calls: dict[str, Callable]) -> None:
    """A kernel that is fast and wrong is of no use."""
    expected = calls["eager"]()
    for call in calls.values():
        # A sum over all rows, in another order and rounded to bf16.
        torch.testing.assert_close(call(), expected, rtol=2**-6, atol=0.5)


def main() -> None:
    """Compile, compare, and print a line for each shape."""
    with tempfile.TemporaryDirectory() as folder:
        library = nvcc.library(SOURCE, Path(folder))
        launch = nvcc.launchers(library)
    print(f"{versions()}; bf16, median microseconds of {ROUNDS} calls, cold caches\n")
    print(f"{'rows x hidden':14} {'':10} {'eager':>9} {'plain':>9}")
    kinds = {
        "forward": (forward_calls, launch["plain_rms_norm"]),
        "gradients": (gradient_calls, launch["plain_gradients"]),
    }
    for rows, hidden in SHAPES:
        x = torch.randn(rows, hidden, device="cuda", dtype=torch.bfloat16)
        weight = torch.randn(hidden, device="cuda", dtype=torch.bfloat16)
        for name, (calls_of, plain) in kinds.items():
            calls = calls_of(plain, x, weight)
            check(calls)
            times = medians(calls, ROUNDS)
            row = "".join(f" {times[each]:9.1f}" for each in calls)
            print(f"{f'{rows} x {hidden}':14} {name:10}{row}")


if __name__ == "__main__":
    main()

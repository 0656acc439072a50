"""Time each step of the ladder beside cuBLAS, on an NVIDIA GPU that has a TMA.

python3 examples_src/sources/matmul_ladder/measure_ladder.py
"""

from collections.abc import Callable

import matmul_ladder as ladder
import torch
import torch.nn.functional as F
import triton

SHAPES = ((8192, 8192, 8192), (4096, 4096, 4096), (16384, 4096, 1024))  # M, K, N
ROUNDS = 3  # the clock of a busy GPU falls and rises: all steps take turns


def steps(a: torch.Tensor, b: torch.Tensor) -> dict[str, Callable]:
    """Every step of the ladder for one pair of matrices, and what it stands beside."""
    bias = torch.randn(b.shape[1], device=a.device, dtype=a.dtype)
    found = {name: lambda f=f: f(a, b) for name, f in ladder.STEPS.items()}
    found["torch.matmul"] = lambda: a @ b
    found["fused with bias and GELU"] = lambda: ladder.descriptors(a, b, bias)
    found["the same in two calls"] = lambda: F.gelu(F.linear(a, b.t(), bias))
    return found


def milliseconds(calls: dict[str, Callable]) -> dict[str, float]:
    """The median time of each call; ``do_bench`` empties the L2 cache before a call."""
    times = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            times[name].append(triton.testing.do_bench(call, return_mode="median"))
    return {name: sorted(found)[ROUNDS // 2] for name, found in times.items()}


def main() -> None:
    """Print a column of TFLOP/s for each shape, and the share of ``torch.matmul``."""
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, ", end="")
    print(f"Triton {triton.__version__}, bf16; TFLOP/s, and share of torch.matmul")
    rates = {}
    for m, k, n in SHAPES:
        torch.manual_seed(0)
        a = torch.randn(m, k, device="cuda").bfloat16()
        b = (torch.randn(k, n, device="cuda") / k**0.5).bfloat16()
        calls = steps(a, b)
        for name in ladder.STEPS:
            torch.testing.assert_close(calls[name](), a @ b, rtol=2**-6, atol=2**-6)
        two, one = calls["the same in two calls"](), calls["fused with bias and GELU"]()
        torch.testing.assert_close(one, two, rtol=2**-6, atol=2**-6)
        for name, time in milliseconds(calls).items():
            rates.setdefault(name, []).append(2 * m * k * n / time / 1e9)
    print(f"{'M x K x N':26}", *(f"{'x'.join(map(str, s)):>20}" for s in SHAPES))
    for name, found in rates.items():
        shares = zip(found, rates["torch.matmul"], strict=True)
        row = (f"{rate:13.0f} {rate / best:6.0%}" for rate, best in shares)
        print(f"{name:26}", *row)
    print("configs that the tuner chose:")
    for key, config in ladder.tuned_kernel.cache.items():
        print(" ", *key[:3], config)


if __name__ == "__main__":
    main()

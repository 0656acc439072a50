"""Microseconds from call to call of RMSNorm, of several contenders in turns.

Python calls one after another without waiting for the GPU, and the tensors are so small
that the GPU waits for Python.
"""

import time
from collections.abc import Callable

import torch
from contenders import EPS, RMS_NORM
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, HIDDEN = 4, 4096
CALLS, ROUNDS = 200, 25
IN_PYTHON = ("opbook.triton", "QuACK", "Liger")  # Python launches their kernels


class Plain(torch.autograd.Function):
    """The operators for forward and backward, and nothing around them."""

    @staticmethod
    def forward(ctx, input: Tensor, weight: Tensor) -> Tensor:
        """Save what backward reads."""
        output, rrms = torch.ops.opbook.rms_norm_forward.default(input, weight, EPS)
        ctx.save_for_backward(input, weight, rrms)
        return output

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, ...]:
        """Compute both gradients."""
        backward = torch.ops.opbook.rms_norm_backward.default
        return backward(grad, *ctx.saved_tensors, True, True)


def contenders() -> dict[str, Callable]:
    """Those that can take part; the others say why not."""
    tables = RMS_NORM | {"autograd.Function": lambda: Plain.apply}
    found = {}
    for name in ("eager", "opbook", "autograd.Function", *IN_PYTHON):
        try:
            found[name] = tables[name]()
        except (ImportError, RuntimeError) as error:
            print(f"{name}: {error}")
    return found


def microseconds(call: Callable) -> float:
    """From call to call; the GPU is waited for at the end."""
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / CALLS * 1e6


def fastest(calls: dict[str, Callable]) -> dict[str, float]:
    """The least of several rounds, in each of which every call has its turn."""
    for call in calls.values():  # compiles, and fills caches
        microseconds(call)
    times = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            times[name].append(microseconds(call))
    return {name: min(found) for name, found in times.items()}


def backward_of(function: Callable, grad: Tensor, *leaves: Tensor) -> Callable:
    """A call of autograd, for one forward pass."""
    output = function(*leaves)
    return lambda: torch.autograd.grad(output, leaves, grad, retain_graph=True)


def main() -> None:
    """Measure without a gradient, with one, and backward, and print a table."""
    options = {"device": DEVICE, "dtype": torch.bfloat16}
    grad, *tensors = torch.randn(2, ROWS, HIDDEN, **options)
    tensors.append(torch.randn(HIDDEN, **options))
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    functions = contenders()
    columns = {
        "no gradient": {n: lambda f=f: f(*tensors) for n, f in functions.items()},
        "with gradient": {n: lambda f=f: f(*leaves) for n, f in functions.items()},
        "backward": {n: backward_of(f, grad, *leaves) for n, f in functions.items()},
    }
    times = {name: fastest(calls) for name, calls in columns.items()}
    print(f"{ROWS} x {HIDDEN}, bfloat16: microseconds from call to call")
    print(f"{'':18}" + "".join(f"{name:>15}" for name in times))
    for name in functions:
        row = "".join(f"{found[name]:15.1f}" for found in times.values())
        print(f"{name:18}{row}")


if __name__ == "__main__":
    main()

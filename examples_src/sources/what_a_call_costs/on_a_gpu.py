"""Microseconds from call to call of RMSNorm, eager and others, in turns in one process.

Python calls one after another without waiting for the GPU, and the tensors are so small
that the GPU waits for Python.
"""

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

import opbook

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, HIDDEN, EPS = 4, 4096, 1e-6
CALLS, ROUNDS = 200, 25


# [plain_function]
class Plain(torch.autograd.Function):
    """The operators for forward and backward, and nothing around them."""

    @staticmethod
    def forward(ctx, input, weight, eps):
        output, rrms = torch.ops.opbook.rms_norm_forward.default(input, weight, eps)
        ctx.save_for_backward(input, weight, rrms)
        return output

    @staticmethod
    def backward(ctx, grad):
        backward = torch.ops.opbook.rms_norm_backward.default
        return *backward(grad, *ctx.saved_tensors, True, True), None


# [/plain_function]


def in_triton() -> Callable:
    if DEVICE == "cpu":
        raise ImportError("Triton's interpreter has no launch to time")
    return opbook.triton.rms_norm


def quack() -> Callable:
    import quack

    return lambda x, w, eps: quack.rmsnorm(x, w, eps=eps)


def liger() -> Callable:
    from liger_kernel.transformers.functional import liger_rms_norm

    return lambda x, w, eps: liger_rms_norm(x, w, eps, in_place=False)


CONTENDERS = {
    "eager": lambda: lambda x, w, eps: F.rms_norm(x, w.shape, w, eps),
    "opbook": lambda: opbook.rms_norm,
    "autograd.Function": lambda: Plain.apply,
    "opbook.triton": in_triton,
    "QuACK": quack,
    "Liger": liger,
}


def synchronize() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def microseconds(call: Callable) -> float:
    synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    synchronize()
    return (time.perf_counter() - start) / CALLS * 1e6


def fastest(calls: dict[str, Callable]) -> dict[str, float]:
    """The least of several rounds, in each of which every call has its turn."""
    for call in calls.values():
        microseconds(call)
    rounds = [
        {name: microseconds(calls[name]) for name in calls} for _ in range(ROUNDS)
    ]
    return {name: min(found[name] for found in rounds) for name in calls}


def available() -> dict[str, Callable]:
    found = {}
    for name, make in CONTENDERS.items():
        try:
            found[name] = make()
        except ImportError as error:
            print(f"{name}: {error}")
    return found


def backward_of(function: Callable, x: Tensor, w: Tensor, grad: Tensor) -> Callable:
    output = function(x, w, EPS)
    return lambda: torch.autograd.grad(output, (x, w), grad, retain_graph=True)


def main() -> None:
    options = {"device": DEVICE, "dtype": torch.bfloat16}
    x, grad = torch.randn(2, ROWS, HIDDEN, **options)
    w = torch.randn(HIDDEN, **options)
    leaves = x.clone().requires_grad_(), w.clone().requires_grad_()
    functions = available()
    columns = {
        "no gradient": {n: lambda f=f: f(x, w, EPS) for n, f in functions.items()},
        "with gradient": {n: lambda f=f: f(*leaves, EPS) for n, f in functions.items()},
        "backward": {n: backward_of(f, *leaves, grad) for n, f in functions.items()},
    }
    times = {name: fastest(calls) for name, calls in columns.items()}
    print(f"{ROWS}x{HIDDEN} {x.dtype}, microseconds from call to call")
    print(f"{'':18}" + "".join(f"{name:>15}" for name in times))
    for name in functions:
        row = "".join(f"{found[name]:15.1f}" for found in times.values())
        print(f"{name:18}{row}")


if __name__ == "__main__":
    main()

"""Microseconds from call to call of SwiGLU, registered in several ways, in turns.

Python calls one after another without waiting for the GPU, and the tensors are so small
that the GPU waits for Python.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import cpp_extension

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, COLUMNS = 4, 4096
CALLS, ROUNDS = 200, 25
HERE = Path(__file__).resolve().parent
STARTER = HERE.parents[2] / "starter"


def build() -> None:
    """Compile the starter's operator as calls::swiglu; starter::swiglu is Triton's."""
    flags = ["-O3", "-std=c++20", "-Dstarter=calls"]
    flags += ["-DTORCH_TARGET_VERSION=0x020b000000000000"]
    sources = [HERE / "on_a_gpu.cpp"]
    if DEVICE == "cuda":
        flags.append("-DUSE_CUDA")
        sources.append(STARTER / "cpp" / "csrc" / "swiglu.cu")
    with tempfile.TemporaryDirectory() as folder:
        cpp_extension.load(
            name="calls",
            sources=list(map(str, sources)),
            extra_cflags=flags,
            extra_cuda_cflags=flags,
            build_directory=folder,
            is_python_module=False,
        )


def save(ctx, inputs, output) -> None:
    """Keep what backward reads."""
    ctx.save_for_backward(*inputs[:2])


def backward(ctx, grad: Tensor) -> tuple:
    """Both gradients, and none of the limit."""
    return *torch.ops.calls.swiglu_backward.default(grad, *ctx.saved_tensors), None


class Plain(torch.autograd.Function):
    """The operators for forward and backward, and nothing around them."""

    @staticmethod
    def forward(ctx, gate: Tensor, up: Tensor) -> Tensor:
        """Save what backward reads."""
        ctx.save_for_backward(gate, up)
        return torch.ops.calls.swiglu.default(gate, up)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, ...]:
        """Compute both gradients."""
        return torch.ops.calls.swiglu_backward.default(grad, *ctx.saved_tensors)


def ways() -> dict[str, Callable]:
    """The same operator by each way; Triton's needs a GPU."""
    found = {
        "eager": lambda gate, up: F.silu(gate) * up,
        "register_autograd": torch.ops.calls.registered.default,
        "autograd.Function": Plain.apply,
    }
    if DEVICE == "cuda":
        sys.path.insert(0, str(STARTER / "triton_elementwise" / "src"))
        from starter import swiglu

        found["Triton"] = swiglu
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
    build()
    torch.library.register_autograd("calls::registered", backward, setup_context=save)
    options = {"device": DEVICE, "dtype": torch.bfloat16}
    grad, *tensors = torch.randn(3, ROWS, COLUMNS, **options)
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    functions = ways()
    for function in functions.values():
        torch.testing.assert_close(function(*tensors), functions["eager"](*tensors))
    columns = {
        "no gradient": {n: lambda f=f: f(*tensors) for n, f in functions.items()},
        "with gradient": {n: lambda f=f: f(*leaves) for n, f in functions.items()},
        "backward": {n: backward_of(f, grad, *leaves) for n, f in functions.items()},
    }
    times = {name: fastest(calls) for name, calls in columns.items()}
    print(f"{ROWS} x {COLUMNS}, bfloat16: microseconds from call to call")
    print(f"{'':18}" + "".join(f"{name:>15}" for name in times))
    for name in functions:
        row = "".join(f"{found[name]:15.1f}" for found in times.values())
        print(f"{name:18}{row}")


if __name__ == "__main__":
    main()

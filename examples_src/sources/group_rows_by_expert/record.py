"""The mixture of experts of moe.py on a GPU: synchronizations, results, and times."""

from collections.abc import Callable

import clock
import moe
import torch
from torch import Tensor

TOKENS, COLUMNS, HIDDEN, EXPERTS, CHOICES = 8192, 2048, 1024, 64, 8
ROUNDS = 21


def inputs(tokens: int = TOKENS) -> list[Tensor]:
    """The tokens and the weights of the layer, in bf16."""
    torch.manual_seed(0)
    shapes = (
        (tokens, COLUMNS),
        (COLUMNS, EXPERTS),
        (EXPERTS, COLUMNS, HIDDEN),
        (EXPERTS, HIDDEN, COLUMNS),
    )
    made = [torch.randn(shape, device="cuda") / shape[-2] ** 0.5 for shape in shapes]
    return [tensor.bfloat16().requires_grad_() for tensor in made]


def step(layer: Callable, arguments: list[Tensor], grad: Tensor) -> list[Tensor]:
    """The output and all gradients."""
    y = layer(*arguments, CHOICES)
    return [y, *torch.autograd.grad(y, arguments, grad)]


def results() -> None:
    """Compare with the loop, for groups of any size, with synchronization forbidden."""
    for tokens in (TOKENS, 61):
        arguments = inputs(tokens)
        grad = torch.randn_like(arguments[0])
        expected = step(moe.loop, arguments, grad)
        for name, layer in {
            "eager": moe.mixture,
            "torch.compile": torch.compile(moe.mixture, fullgraph=True, dynamic=False),
        }.items():
            step(layer, arguments, grad)  # to compile is to synchronize
            torch.cuda.set_sync_debug_mode("error")
            found = step(layer, arguments, grad)
            torch.cuda.set_sync_debug_mode("default")
            errors = [
                ((a.float() - b.float()).norm() / b.float().norm()).item()
                for a, b in zip(found, expected, strict=True)
            ]
            words = " ".join(f"{error:.4f}" for error in errors)
            print(f"  {tokens} tokens, {name:14}relative errors {words}", flush=True)
    torch.cuda.set_sync_debug_mode("error")
    try:
        moe.loop(*inputs(61), CHOICES)
        print("  loop: no synchronization")
    except RuntimeError as error:
        print("  loop:", str(error).splitlines()[0])
    torch.cuda.set_sync_debug_mode("default")


def times() -> None:
    """Print the time of the layer, and of the permutations alone.

    The loop waits for the GPU, so the clock for the layer runs from call to call.
    """
    arguments = inputs()
    x, router = (tensor.detach() for tensor in arguments[:2])
    grad = torch.randn_like(x)
    weight, experts = (x @ router).float().softmax(-1).topk(CHOICES)
    choice, row, _ = moe.group(experts, EXPERTS)
    rows = moe.spread(x, choice, row)
    tokens = choice // CHOICES
    zeros = torch.zeros_like(x, dtype=torch.float32)
    flat = weight.flatten()[choice, None]
    layers = {
        "layer and gradients, loop": lambda: step(moe.loop, arguments, grad),
        "layer and gradients, grouped": lambda: step(moe.mixture, arguments, grad),
    }
    kernels = {
        "spread": lambda: moe.spread(x, choice, row),
        "index_select": lambda: x.index_select(0, tokens),
        "combine": lambda: moe.combine(rows, choice, row, CHOICES, weight),
        "index_add": lambda: zeros.index_add(0, tokens, flat * rows),
    }
    found = {name: clock.eager_time(call, calls=10) for name, call in layers.items()}
    found |= clock.medians(kernels, ROUNDS)
    for name, taken in found.items():
        print(f"  {name:30}{taken:10.1f}")


if __name__ == "__main__":
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    print("output, gradients of x, router, up, down; synchronizing is an error")
    results()
    shape = f"{TOKENS}x{COLUMNS}, {EXPERTS} experts, {CHOICES} choices"
    print(f"{shape}, bf16, microseconds; without the layer, with a cold cache")
    times()

"""Time what Inductor makes of a pattern, and the operator in its place, on a GPU."""

from collections.abc import Callable

import clock
import patterns as p
import torch
from torch import Tensor
from torch._inductor.pattern_matcher import fwd_only, joint_fwd_bwd
from torch._inductor.utils import fresh_cache
from torch.utils._pytree import tree_leaves

EPS = 1e-6
SHAPES = [(2048, 4096), (16384, 4096), (2048, 16384)]
ROUNDS = 41


def alone(x: Tensor, weight: Tensor) -> Tensor:
    """The pattern and nothing else."""
    return p.llama(x, weight, EPS)


def between(x: Tensor, weight: Tensor) -> Tensor:
    """The pattern between operators that Inductor fuses with it."""
    return p.llama(x * 2 + 1, weight, EPS).relu()


def inference(function: Callable, x: Tensor, weight: Tensor) -> dict[str, Callable]:
    """Ways to call a function without a gradient."""
    replace = p.Replace(p.pattern("llama", fwd_only, p.llama, x.dtype))
    ours = p.compiled(function, post_grad_custom_post_pass=replace)
    with torch.no_grad():
        ours(x, weight)
    if replace.count != 1:
        raise RuntimeError(f"{function.__name__}: replaced {replace.count} times")
    return {
        "eager": lambda: function(x, weight),
        "compiled": bind(torch.compile(function, fullgraph=True), x, weight),
        "replaced": bind(ours, x, weight),
    }


def bind(function: Callable, *inputs: Tensor) -> Callable:
    """Call once, to compile, and return a call without arguments."""
    with torch.no_grad():
        function(*inputs)
    return lambda: function(*inputs)


def training(function: Callable, x: Tensor, weight: Tensor) -> dict[str, Callable]:
    """Forward and backward by the same ways."""
    x, weight = (t.detach().requires_grad_() for t in (x, weight))
    grad = torch.randn_like(x)
    replace = p.Replace(p.pattern("llama", joint_fwd_bwd, p.llama, x.dtype))
    ours = p.compiled(function, joint_custom_post_pass=replace)

    def step(function: Callable) -> Callable:
        def both() -> tuple[Tensor, ...]:
            return torch.autograd.grad(function(x, weight), (x, weight), grad)

        both()
        return both

    calls = {"replaced": step(ours)}
    if replace.count != 1:
        raise RuntimeError(f"{function.__name__}: replaced {replace.count} times")
    plain = torch.compile(function, fullgraph=True)
    return {"eager": step(function), "compiled": step(plain)} | calls


def compare(calls: dict[str, Callable]) -> None:
    """Raise unless all ways agree with eager, but for roundings of bf16."""
    expected = tree_leaves(calls["eager"]())
    for name, call in calls.items():
        for found, right in zip(tree_leaves(call()), expected, strict=True):
            error = (found.double() - right.double()).norm() / right.double().norm()
            if error > 2**-7:
                raise RuntimeError(f"{name}: relative error {error:.3g}")


def row(name: str, function: Callable, ways: Callable, shape: tuple[int, int]) -> None:
    """Print the microseconds of each way."""
    torch._dynamo.reset()
    x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(shape[1], device="cuda", dtype=torch.bfloat16)
    calls = ways(function, x, weight)
    compare(calls)
    found = clock.medians(calls, ROUNDS)
    times = "".join(f"{found[way]:10.1f}" for way in ("eager", "compiled", "replaced"))
    print(f"{name:26}{'x'.join(map(str, shape)):>12}{times}", flush=True)


if __name__ == "__main__":
    torch._dynamo.config.recompile_limit = 64
    print(clock.versions())
    print(f"microseconds, median of {ROUNDS}, cold cache")
    print(f"{'':26}{'shape':>12}{'eager':>10}{'compiled':>10}{'replaced':>10}")
    with fresh_cache():  # code from the cache would not run the passes, which count
        for shape in SHAPES:
            with torch.no_grad():
                row("norm", alone, inference, shape)
                row("fused with neighbours", between, inference, shape)
            row("norm, with gradients", alone, training, shape)

"""Train a transformer on a GPU by each way: losses, time of a step, peak memory."""

import gc
import importlib.util
import itertools
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import clock
import torch
from patch import patch
from torch import Tensor, nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from transformer import Transformer, batches, loss_of

TOKENS, LAYERS = 8192, 8
ROWS, LENGTH = 16, 512


class Size(NamedTuple):
    """A model, and how many steps to train it."""

    hidden: int
    heads: int
    rate: float  # of learning
    steps: int
    timed: int  # the last of them


SIZES = Size(1024, 16, 3e-4, 200, 50), Size(4096, 32, 3e-5, 40, 20)


def liger(model: nn.Module) -> nn.Module:
    """Swap the norms for Liger's, which is what Liger's own patches do."""
    from liger_kernel.transformers import LigerRMSNorm

    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.RMSNorm:
                new = LigerRMSNorm(*child.normalized_shape, eps=child.eps)
                new.weight = child.weight
                setattr(parent, name, new)
    return model


def unchanged(model: nn.Module) -> nn.Module:
    """The model as it is."""
    return model


def compiled(model: nn.Module) -> nn.Module:
    """The model by torch.compile."""
    model.compile()
    return model


def patched_and_compiled(model: nn.Module) -> nn.Module:
    """The patched model by torch.compile."""
    return compiled(patch(model))


WAYS: dict[str, Callable] = {
    "eager": unchanged,
    "opbook": patch,
    "torch.compile": compiled,
    "opbook, compiled": patched_and_compiled,
}
if importlib.util.find_spec("liger_kernel"):
    WAYS["Liger's norm"] = liger


def model_by(way: Callable, size: Size) -> nn.Module:
    """The same weights for every way."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Transformer(TOKENS, size.hidden, size.heads, LAYERS)
    return way(model.to(torch.bfloat16))


def steps(
    model: nn.Module, rate: float, data: list[Tensor]
) -> tuple[list[float], list[float]]:
    """Train; return the losses, and the milliseconds of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, fused=True)
    losses, times = [], []
    for batch in data:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
        losses.append(loss.item())
    return losses, times


def on_the_gpu(model: nn.Module, size: Size, data: list[Tensor]) -> float:
    """The milliseconds of a step in which a kernel runs."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        steps(model, size.rate, data)
    kernels = (e for e in profiler.key_averages() if e.device_type == DeviceType.CUDA)
    return sum(e.self_device_time_total for e in kernels) / 1e3 / len(data)


def measure(way: Callable, size: Size, data: list[Tensor]) -> dict:
    """The losses, and the time, kernels' time and peak memory of the last steps."""
    torch._dynamo.reset()
    gc.collect()  # frees the model before
    model = model_by(way, size)
    losses, _ = steps(model, size.rate, data[: -size.timed])
    torch.cuda.reset_peak_memory_stats()
    more, times = steps(model, size.rate, data[-size.timed :])
    return {
        "losses": losses + more,
        "GB": torch.cuda.max_memory_allocated() / 1e9,
        "ms": statistics.median(times),
        "GPU": on_the_gpu(model, size, data[-3:]),
    }


def permuted(data: list[Tensor]) -> list[Tensor]:
    """The same batches with their rows in another order: other roundings."""
    order = torch.Generator("cuda").manual_seed(1)
    take = {"generator": order, "device": "cuda"}
    return [batch[torch.randperm(len(batch), **take)] for batch in data]


def compare(size: Size) -> None:
    """Print one row for each way."""
    parameters = sum(p.numel() for p in model_by(unchanged, size).parameters())
    print(f"\n{parameters / 1e6:.0f} M parameters, {ROWS} rows of {LENGTH} tokens")
    data = list(itertools.islice(batches(TOKENS, ROWS, LENGTH, "cuda"), size.steps))
    found = {name: measure(way, size, data) for name, way in WAYS.items()}
    found["eager, rows permuted"] = measure(unchanged, size, permuted(data))
    head = ("ms a step", "kernels", "peak GB", "last loss", "off eager")
    print(f"{'':22}" + "".join(f"{name:>11}" for name in head))
    for name, result in found.items():
        pairs = zip(result["losses"], found["eager"]["losses"], strict=True)
        off = max(abs(one - other) for one, other in pairs)
        print(
            f"{name:22}{result['ms']:11.2f}{result['GPU']:11.2f}{result['GB']:11.2f}"
            f"{result['losses'][-1]:11.4f}{off:11.4f}"
        )


if __name__ == "__main__":
    print(clock.versions())
    for size in SIZES:
        compare(size)

"""Run draw::dropout on a GPU: its words, CUDA graphs, the compiler, and its time."""

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import clock
import dropout as draw
import nvcc
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.utils import counters
from torch._inductor import config
from torch.utils.cpp_extension import include_paths, library_paths

P, SHAPE, ROUNDS = 0.5, (16384, 4096), 41
CALLS = 6


def build() -> None:
    """Compile the operator, and beside it the one that reserves numbers with ATen."""
    link = [f"-L{path}" for path in library_paths()]
    link += ["-ltorch_cpu", "-ltorch_cuda", "-lc10"]
    headers = [f"-I{path}" for path in include_paths()]
    jobs = {
        "dropout.cu": [draw.HERE / "dropout_op.cpp", draw.SINCE_2_11],
        "reserve.cpp": [draw.HERE / "reserve_cuda.cpp"],
    }

    def compiled(source: str, folder: str) -> Path:
        hidden = ["-Xcompiler", "-fvisibility=hidden"]
        options = ["-DUSE_CUDA", *hidden, *jobs[source], *headers, *link]
        return nvcc.library(draw.HERE / source, Path(folder), *options)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        for library in pool.map(partial(compiled, folder=folder), jobs):
            torch.ops.load_library(library)
    draw.register()
    draw.register_draw("reserve")


def by_randint(x: Tensor) -> Tensor:
    """Dropout with a state that torch.randint draws."""
    return draw.dropout(x, P)


def by_reserve(x: Tensor) -> Tensor:
    """Dropout with a state that ATen reserves in PyTorch's own stream."""
    return torch.ops.draw.dropout(x, P, torch.ops.draw.reserve(x))


def by_inductor(x: Tensor) -> Tensor:
    """As by_randint, but Inductor draws the state where it compiles."""
    state = torch.randint(2**63 - 1, (2,), device=x.device)  # without generator=
    return torch.ops.draw.dropout(x, P, state)


WAYS = {"torch.randint": by_randint, "draw::reserve": by_reserve}


# ---- Which words


def of_one_mask() -> bool:
    """Whether the CPU and the GPU drop the same elements."""
    state, ones = torch.tensor([2**40 + 3, 8]), torch.ones(10001)
    for x in (ones.cuda(), ones.cuda()[1:]):  # the second one is not aligned
        on_gpu = torch.ops.draw.dropout(x, P, state.cuda())
        if not torch.equal(torch.ops.draw.dropout(x.cpu(), P, state), on_gpu.cpu()):
            return False
    return True


def of_one_stream() -> bool:
    """Whether torch.rand has the words that the operator would have had."""
    generator = torch.Generator("cuda").manual_seed(5)
    torch.rand(9, device="cuda", generator=generator)  # moves the offset
    ones = torch.ones(4000, device="cuda")
    again = generator.clone_state()
    mask = torch.ops.draw.dropout(ones, 0.5, torch.ops.draw.reserve(ones, generator))
    numbers = torch.rand(1000, device="cuda", generator=again)
    return torch.equal(mask[::4] != 0, numbers >= 0.5)  # the first word of each group


# ---- Which masks


def masks(function: Callable, before: int = 0) -> list[Tensor]:
    """The masks of some calls after manual_seed; calls before it warm up."""
    ones = torch.ones(4096, device="cuda")
    for _ in range(before):
        function(ones)
    torch.cuda.manual_seed(7)
    return [function(ones).clone() for _ in range(CALLS)]


def captured(function: Callable) -> Callable:
    """A function that replays the graph of a call."""
    input = torch.ones(4096, device="cuda")
    function(input)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = function(input)

    def replay(x: Tensor) -> Tensor:
        input.copy_(x)
        graph.replay()
        return output

    return replay


def compiled(function: Callable, fallback: bool = False, **options) -> list[Tensor]:
    """The masks of the compiled function."""
    torch._dynamo.reset()
    with config.patch(fallback_random=fallback):
        return masks(torch.compile(function, fullgraph=True, **options), before=3)


def answers(function: Callable) -> dict[str, object]:
    """What holds for one way to draw the state."""
    eager, replayed = masks(function), masks(captured(function))
    ours, fallback = compiled(function), compiled(function, fallback=True)
    counters.clear()
    graphs = compiled(function, mode="reduce-overhead")
    skipped = counters["inductor"]["cudagraph_skips"]
    again = compiled(function, mode="reduce-overhead")
    return {
        "replays: different masks": different(replayed),
        "replays: as eager": same(replayed, eager),
        "compiled: different masks": different(ours),
        "compiled: as eager": same(ours, eager),
        "compiled: as eager, fallback_random": same(fallback, eager),
        "reduce-overhead: graphs skipped": skipped,
        "reduce-overhead: different masks": different(graphs),
        "reduce-overhead: repeats": same(graphs, again),
    }


def different(masks: list[Tensor]) -> str:
    """How many of the masks there are."""
    return f"{len({tuple(mask.tolist()) for mask in masks})} of {len(masks)}"


def same(ours: list[Tensor], theirs: list[Tensor]) -> str:
    """Whether two lists have the same masks."""
    return "yes" if all(map(torch.equal, ours, theirs)) else "no"


# ---- How fast


def eager(x: Tensor) -> Tensor:
    """PyTorch's operator, which saves a mask."""
    return F.dropout(x, P)


def saved_megabytes(function: Callable, x: Tensor) -> float:
    """What a call keeps for backward, besides its output."""
    before = torch.cuda.memory_allocated()
    output = function(x)
    return (torch.cuda.memory_allocated() - before - output.nbytes) / 2**20


def times() -> None:
    """Print the time of forward and backward, and what is saved between them."""
    x = torch.randn(SHAPE, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    grad = torch.randn_like(x)
    torch._dynamo.reset()
    ways = {
        "F.dropout": eager,
        "F.dropout, compiled": torch.compile(eager, fullgraph=True),
        **WAYS,
    }
    forward = {name: partial(way, x) for name, way in ways.items()}
    forward["copy"] = x.detach().clone
    backward = {}
    for name, way in ways.items():
        output = way(x)
        backward[name] = partial(
            torch.autograd.grad, output, x, grad, retain_graph=True
        )
    kept = {name: saved_megabytes(way, x) for name, way in ways.items()}
    there, back = (clock.medians(calls, ROUNDS) for calls in (forward, backward))
    print(f"{'':20}{'forward':>10}{'backward':>10}{'saved MiB':>11}")
    print(f"{'copy':20}{there['copy']:10.1f}")
    for name in ways:
        print(f"{name:20}{there[name]:10.1f}{back[name]:10.1f}{kept[name]:11.1f}")


def main() -> None:
    """Compile, compare, and time."""
    build()
    print(clock.versions())
    print("the CPU and the GPU have one mask:", of_one_mask())
    print("reserve and torch.rand share a stream:", of_one_stream())
    ways = {**WAYS, "no generator=": by_inductor}
    found = {name: answers(way) for name, way in ways.items()}
    print(f"\n{f'{CALLS} calls after manual_seed(7)':36}", *(f"{n:>14}" for n in found))
    for question in found["torch.randint"]:
        row = (f"{answer[question]:>14}" for answer in found.values())
        print(f"{question:36}", *row)
    shape = "x".join(map(str, SHAPE))
    print(f"\nmicroseconds, {shape}, p = {P}, median of {ROUNDS}, cold cache")
    times()


if __name__ == "__main__":
    main()

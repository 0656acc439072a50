"""Times of calls: with cold caches in turns, from call to call, and in a CUDA graph.

Without a GPU the same functions time the CPU, so that the code can be tried anywhere.
"""

import statistics
import time
from collections.abc import Callable

import speed
import torch

DEVICE, GPU = speed.DEVICE, speed.GPU
Call = Callable[[], object]


def take_turns(calls: dict[str, Call], rounds: int) -> dict[str, dict[str, float]]:
    """Median and 95th percentile of each call by both clocks, in microseconds.

    Before a call, the clean clock reads a large buffer, and the dirty clock writes it.
    """
    clean = speed.in_turns(calls, rounds)
    dirty = speed.in_turns(calls, rounds, dict.fromkeys(calls, speed.fill))
    found = {}
    for name in calls:
        after_writes = summary(dirty[name])
        marked = {f"dirty {kind}": taken for kind, taken in after_writes.items()}
        found[name] = summary(clean[name]) | marked
    return found


def summary(times: list[float]) -> dict[str, float]:
    """Median and 95th percentile."""
    last = statistics.quantiles(times, n=20, method="inclusive")[-1]
    return {"median": statistics.median(times), "p95": last}


def eager_time(call: Call, calls: int = 50, batches: int = 11) -> float:
    """Microseconds from call to call when Python launches them one after another."""
    taken = []
    for _ in range(batches):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        if GPU:
            torch.cuda.synchronize()
        taken.append(1e6 * (time.perf_counter() - begin) / calls)
    return statistics.median(taken)


def graph_time(make: Callable[[], Call], copies: int = 20, replays: int = 31) -> float:
    """Microseconds of a call when a CUDA graph of several is replayed, caches warm.

    Args:
        make: Makes a call with tensors of its own. It runs in the stream that captures:
            autograd launches a backward where its forward ran.
        copies: Calls in the graph.
        replays: Replays to take the median of.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        calls = [make() for _ in range(copies)]
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        kept = [call() for call in calls]
    taken = []
    for _ in range(replays):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        taken.append(1e3 * start.elapsed_time(end) / copies)
    del kept
    return statistics.median(taken)

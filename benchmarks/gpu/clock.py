"""A clock for calls on a GPU: nothing of theirs is in a cache, and they take turns.

Without a GPU the same functions time the CPU, so that the code can be tried anywhere.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable

import torch

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
WARM_UP = 20 if GPU else 2  # rounds: a GPU at rest has slow clocks
MOST_FLUSHES = 40
Call = Callable[[], object]


class Clock:
    """Times calls whose caches are cold.

    Between two calls it reads a buffer much larger than the cache. It reads, because a
    write would leave lines that the next call has to write back. That also keeps the
    GPU busy while Python launches the call, so that events around the call see the work
    of the GPU alone. A slow launcher needs more than one reading: see ``_sample``.
    """

    def __init__(self) -> None:
        size = 16 * 2**20
        if GPU:
            properties = torch.cuda.get_device_properties(DEVICE)
            size = 8 * max(getattr(properties, "L2_cache_size", 0), 32 * 2**20)
        self.buffer = torch.zeros(size // 4, device=DEVICE)
        # A result lives until some others are there: or each call of a kind would write
        # to one place, and to some places a short call is slower by a tenth.
        self.results = deque(maxlen=16)

    def take_turns(self, calls: dict[str, Call], rounds: int) -> dict[str, dict]:
        """Median and 95th percentile of each call, in microseconds.

        Every round starts with another call, so that none always follows the same one.
        """
        names = list(calls)
        times = {name: [] for name in names}
        flushes = dict.fromkeys(names, 1)
        for round in range(WARM_UP + rounds):
            first = round % len(names)
            for name in names[first:] + names[:first]:
                taken = self._sample(calls[name], name, flushes)
                if round >= WARM_UP:
                    times[name].append(taken)
        self.results.clear()
        # A launch that no flush could hide is in the time, and the result says so.
        return {
            name: summary(times[name]) | {"hidden": flushes[name] <= MOST_FLUSHES}
            for name in names
        }

    def _sample(self, call: Call, name: str, flushes: dict) -> float:
        """Microseconds of a call with cold caches."""
        if not GPU:
            self.buffer.sum()
            begin = time.perf_counter()
            call()
            return 1e6 * (time.perf_counter() - begin)
        while True:
            for _ in range(min(flushes[name], MOST_FLUSHES)):
                self.buffer.sum()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            self.results.append(call())
            end.record()
            # Still flushing: the whole call is queued, none of its launches is timed.
            hidden = not start.query()
            # Among others in a queue, a short call's time depends on its place there.
            end.synchronize()
            if hidden or flushes[name] > MOST_FLUSHES:
                return 1e3 * start.elapsed_time(end)
            flushes[name] += 1


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

"""Times of calls: with cold caches in turns, from call to call, and in a CUDA graph.

On a GPU the clock is the GPU's own, and nothing is left in L2 from one call to the
next. Without a GPU the same functions time the CPU, so that the code can be tried
anywhere.
"""

import random
import statistics
import time
from collections import deque
from collections.abc import Callable, Hashable
from functools import cache

import torch

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
DTYPE = torch.bfloat16
ROUNDS = 101 if GPU else 15
WARM_UP = 20 if GPU else 2  # rounds: a GPU at rest has slow clocks
MOST_FLUSHES = 40
CPU_CACHE = 16 * 2**20  # bytes read between two calls, on the CPU
Call = Callable[[], object]


# A result lives until some others are there, so that the next has another place: to
# some places in the GPU's memory a short call is slower by up to a tenth.
results = deque(maxlen=16)


def flush() -> None:
    """Read so much that nothing else is left in the cache: the clean clock."""
    flush_buffer().sum()


def fill() -> None:
    """Write so much that the cache holds nothing else: the dirty clock.

    The next call has to write these lines back, as after an operator before it.
    """
    flush_buffer().zero_()


def one_call(call: Callable, before: Callable = flush) -> float:
    """Microseconds of a call that finds in the cache what is left there before."""
    if not GPU:
        before()
        begin = time.perf_counter()
        call()
        return 1e6 * (time.perf_counter() - begin)
    # The flush keeps the GPU busy until the call is queued behind it, so that the
    # events hold the time of the kernel and not of the Python that launches it. If the
    # start is over by then, the launch took longer than the flush: flush more.
    for flushes in range(1, MOST_FLUSHES + 1):
        for _ in range(flushes):
            before()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        results.append(call())
        end.record()
        hidden = not start.query()
        # Among others in a queue, a short call's time depends on its place there.
        end.synchronize()
        if hidden:
            return 1e3 * start.elapsed_time(end)
    raise RuntimeError(f"{MOST_FLUSHES} flushes end before the call is launched")


@cache
def flush_buffer() -> torch.Tensor:
    """What to read between two calls: eight times the cache."""
    size = CPU_CACHE
    if GPU:
        properties = torch.cuda.get_device_properties(DEVICE)
        size = 8 * max(getattr(properties, "L2_cache_size", 0), 32 * 2**20)
    return torch.zeros(size // 4, device=DEVICE)


def in_turns(
    calls: dict[Hashable, Callable],
    rounds: int = ROUNDS,
    before: dict[Hashable, Callable] | None = None,
) -> dict[Hashable, list[float]]:
    """Microseconds of each call, once a round; a busy moment hits them all.

    Args:
        calls: The calls, by any key.
        rounds: How many times to take of each.
        before: What comes before each call; a flush, if it is not given.
    """
    keys, times, order = list(calls), {key: [] for key in calls}, random.Random(0)
    before = before or dict.fromkeys(calls, flush)
    for round in range(WARM_UP + rounds):
        order.shuffle(keys)  # so that none always follows the same one
        for key in keys:
            taken = one_call(calls[key], before[key])
            if round >= WARM_UP:
                times[key].append(taken)
    results.clear()
    return times


def medians(calls: dict[str, Callable], rounds: int = ROUNDS) -> dict[str, float]:
    """Median microseconds of each call; the calls take turns."""
    times = in_turns(calls, rounds)
    return {name: statistics.median(found) for name, found in times.items()}


def take_turns(calls: dict[str, Call], rounds: int) -> dict[str, dict[str, float]]:
    """Median and 95th percentile of each call by both clocks, in microseconds.

    Before a call, the clean clock reads a large buffer, and the dirty clock writes it.
    """
    clean = in_turns(calls, rounds)
    dirty = in_turns(calls, rounds, dict.fromkeys(calls, fill))
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


def versions() -> str:
    """The machine and the software, in one line."""
    if not GPU:
        capability = torch.backends.cpu.get_cpu_capability()
        return f"CPU ({capability}, 1 thread), torch {torch.__version__}, {DTYPE}"
    hip, cuda = torch.version.hip, torch.version.cuda
    runtime = f"ROCm {hip}" if hip else f"CUDA {cuda}"
    name = torch.cuda.get_device_name()
    return f"{name}, torch {torch.__version__}, {runtime}, {DTYPE}"

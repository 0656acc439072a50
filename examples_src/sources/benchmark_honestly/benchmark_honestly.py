"""Times one operator in seven ways and says which times cannot be true."""

import statistics
import subprocess
import time
from collections.abc import Callable

import torch
import triton.testing

import opbook

HIDDEN, CALLS = 4096, 100
# Rows: all that is read and written fits the L2 cache, and is more than eight times it.
SHAPES = {"small": 2048, "large": 32768}


def without_synchronize(call: Callable[[], object], flush: torch.Tensor) -> float:
    """The mistake: the clock stops when the last kernel has been asked for."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    seconds = time.perf_counter() - start
    torch.cuda.synchronize()
    return seconds / CALLS


def synchronize_each(call: Callable[[], object], flush: torch.Tensor) -> float:
    """Waits after each call, so each pays for the way to the GPU and back."""
    times = []
    for _ in range(CALLS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def synchronize_batch(call: Callable[[], object], flush: torch.Tensor) -> float:
    """Waits once after many calls."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / CALLS


# [events]
def timed(call: Callable[[], object], before: Callable[[], object]) -> list[float]:
    """Seconds that each of many calls takes on the GPU, after `before` each time."""
    pairs = []
    for _ in range(CALLS):
        before()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    return [start.elapsed_time(end) / 1e3 for start, end in pairs]
    # [/events]


def events_warm(call: Callable[[], object], flush: torch.Tensor) -> float:
    """Events around each call; the cache still holds what the last call used."""
    return statistics.median(timed(call, lambda: None))


def events_cold(call: Callable[[], object], flush: torch.Tensor) -> float:
    """Events around each call, with the cache full of something else."""
    # It reads: a write would leave lines that the call has to write back.
    return statistics.median(timed(call, flush.sum))


def do_bench(call: Callable[[], object], flush: torch.Tensor) -> float:
    """Triton's: events, a cold cache, and the median on request."""
    return triton.testing.do_bench(call, return_mode="median") / 1e3


def graph_replay(call: Callable[[], object], flush: torch.Tensor) -> float:
    """Many calls as one CUDA graph: no Python and no launch between the kernels."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    graph.replay()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3 / CALLS


WAYS = {
    "clock, no synchronize": without_synchronize,
    "clock, synchronize each call": synchronize_each,
    "clock, synchronize per batch": synchronize_batch,
    "events, warm cache": events_warm,
    "events, cold cache": events_cold,
    "triton.testing.do_bench": do_bench,
    "CUDA graph, warm cache": graph_replay,
}


def sm_clock() -> str:
    """What the driver says of the clock at this moment."""
    query = [
        "nvidia-smi",
        "--query-gpu=clocks.sm,clocks.max.sm",
        "--format=csv,noheader",
    ]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return "not readable"
    now, _, highest = done.stdout.partition("\n")[0].partition(", ")
    return f"{now} of {highest}" if done.returncode == 0 else "not readable"


def main() -> None:
    """Print a row for each way, a column for each shape."""
    device = torch.device("cuda")
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    flush = torch.zeros(cache, device=device)  # of four bytes each
    print(f"L2 cache {cache / 2**20:.0f} MiB; SM clock at rest {sm_clock()}")

    calls, moved = {}, {}
    weight = torch.randn(HIDDEN, device=device, dtype=torch.float16)
    for shape, rows in SHAPES.items():
        x = torch.randn(rows, HIDDEN, device=device, dtype=torch.float16)
        calls[shape] = lambda x=x: opbook.rms_norm(x, weight)
        moved[shape] = 2 * x.numel() * x.element_size()
    torch.cuda.synchronize()
    start = time.perf_counter()
    calls["small"]()
    torch.cuda.synchronize()
    print(f"the first call takes {(time.perf_counter() - start) * 1e6:.0f} us")
    for call in calls.values():
        for _ in range(20):
            call()
    source = torch.empty(moved["large"] // 2, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy = events_cold(lambda: target.copy_(source), flush)
    limit = moved["large"] / copy
    print(f"SM clock after work {sm_clock()}")
    print(f"a copy reaches {limit / 1e9:.0f} GB/s; ! marks what is above it\n")

    sizes = [f"{shape}, {moved[shape] >> 20} MiB" for shape in SHAPES]
    print(f"{'':30}" + "".join(f"{size:>24}" for size in sizes))
    print(f"{'way':30}" + "  ".join([f"{'us':>12}{'GB/s':>10}"] * len(SHAPES)))
    for name, measure in WAYS.items():
        row = f"{name:30}"
        for shape, call in calls.items():
            seconds = statistics.median(measure(call, flush) for _ in range(5))
            speed = moved[shape] / seconds
            mark = "!" if speed > 1.02 * limit else " "
            row += f"{seconds * 1e6:12.1f}{speed / 1e9:10.0f} {mark}"
        print(row.rstrip())


if __name__ == "__main__":
    with torch.inference_mode():
        main()

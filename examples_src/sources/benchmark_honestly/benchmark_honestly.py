"""Times one operator in eight ways and says which times cannot be true."""

import statistics
import subprocess
import time
from collections.abc import Callable

import torch
import triton
import triton.language as tl
import triton.testing
from torch import Tensor

CALLS, MOST_FLUSHES, BLOCK = 100, 40, 1024
# Elements in fp16. What is read and written: little; all that the L2 cache holds of a
# clean tensor; more than eight times the cache.
SHAPES = {"tiny": 2**16, "small": 2**23, "large": 2**27}


@triton.jit
def double_kernel(input, output, count, BLOCK: tl.constexpr):
    """Double one block of elements."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(input + place, mask=place < count)
    tl.store(output + place, 2 * x, mask=place < count)


@torch.library.custom_op("honest::double", mutates_args=())
def double(input: Tensor) -> Tensor:
    """Double a contiguous tensor. The CPU needs long for this call, the GPU may not."""
    output, count = torch.empty_like(input), input.numel()
    with torch.cuda.device_of(input):
        double_kernel[(triton.cdiv(count, BLOCK),)](input, output, count, BLOCK=BLOCK)
    return output


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
def timed(call: Callable[[], object], flush: Callable[[], object]) -> list[float]:
    """Seconds that each of many calls takes on the GPU with a cold cache."""
    return [timed_once(call, flush) for _ in range(CALLS)]


def timed_once(call: Callable[[], object], flush: Callable[[], object]) -> float:
    """Flush for longer and longer, until the call is queued before the GPU is done."""
    for flushes in range(1, MOST_FLUSHES + 1):
        for _ in range(flushes):
            flush()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        is_hidden = not start.query()  # the GPU has not yet come to the start
        end.synchronize()
        if is_hidden:
            return start.elapsed_time(end) / 1e3
    raise RuntimeError(f"the call is not queued after {MOST_FLUSHES} flushes")
    # [/events]


# [unchecked]
def unchecked(call: Callable[[], object], before: Callable[[], object]) -> list[float]:
    """The same, and does not ask whether Python was late."""
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
    # [/unchecked]


def events_warm(call: Callable[[], object], flush: torch.Tensor) -> float:
    """Events around each call; the cache still holds what the last call used."""
    return statistics.median(unchecked(call, lambda: None))


def events_cold(call: Callable[[], object], flush: torch.Tensor) -> float:
    """Events around each call, with the cache full of something else."""
    # It reads: a write would leave lines that the call has to write back.
    return statistics.median(unchecked(call, flush.sum))


def events_hidden(call: Callable[[], object], flush: torch.Tensor) -> float:
    """The same, with as many flushes as hide the time that Python takes."""
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
    "events, one flush": events_cold,
    "events, checked flush": events_hidden,
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
    for shape, count in SHAPES.items():
        x = torch.randn(count, device=device, dtype=torch.float16)
        torch.testing.assert_close(double(x), 2 * x, rtol=0, atol=0)
        calls[shape] = lambda x=x: double(x)
        moved[shape] = 2 * x.numel() * x.element_size()
    for call in calls.values():
        for _ in range(20):
            call()
    source = torch.empty(moved["large"] // 2, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy = events_hidden(lambda: target.copy_(source), flush)
    limit = moved["large"] / copy
    print(f"SM clock after work {sm_clock()}")
    print(f"a copy reaches {limit / 1e9:.0f} GB/s; ! marks what is above it\n")

    sizes = [f"{shape}, {moved[shape] / 2**20:.2g} MiB" for shape in SHAPES]
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

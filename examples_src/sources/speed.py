"""Time opbook.rms_norm beside eager PyTorch and beside a copy of the same bytes.

On a GPU the clock is the GPU's own, and nothing is left in L2 from one call to the
next. Without a GPU it times the CPU kernels on smaller tensors.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable

import torch
import torch.nn.functional as F

import opbook

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
DTYPE = torch.bfloat16
ROUNDS = 101 if GPU else 15
WARM_UP = 10 if GPU else 2
MOST_FLUSHES = 20
# Most rows of 4097 begin at addresses that are no multiple of 16 bytes.
GPU_SHAPES = [
    (1, 4096),
    (132, 4096),
    (2048, 4096),
    (16384, 4096),
    (16384, 4097),
    (524288, 128),
    (65536, 1024),
    (2048, 32768),
    (2048, 65536),
]
CPU_SHAPES = [(256, 4096), (256, 4097), (1024, 1024)]
CPU_CACHE = 16 * 2**20  # bytes read between two calls, on the CPU


# [clock]
def one_call(call: Callable, flush: Callable) -> float:
    """Microseconds of a call that finds in the cache what the flush has left there."""
    if not GPU:
        flush()
        begin = time.perf_counter()
        call()
        return 1e6 * (time.perf_counter() - begin)
    # The flush keeps the GPU busy until the call is queued behind it, so that the
    # events hold the time of the kernel and not of the Python that launches it. If the
    # start is over by then, the launch took longer than the flush: flush more.
    for flushes in range(1, MOST_FLUSHES + 1):
        for _ in range(flushes):
            flush()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        hidden = not start.query()
        # Among others in a queue, a short call's time depends on its place there.
        end.synchronize()
        if hidden:
            return 1e3 * start.elapsed_time(end)
    raise RuntimeError(f"{MOST_FLUSHES} flushes end before the call is launched")


# [/clock]


def flush_buffer() -> torch.Tensor:
    """What to read between two calls: nothing else is left in the cache.

    A write would leave lines there that the next call has to write back.
    """
    size = CPU_CACHE
    if GPU:
        properties = torch.cuda.get_device_properties(DEVICE)
        size = 8 * max(getattr(properties, "L2_cache_size", 0), 32 * 2**20)
    return torch.zeros(size // 4, device=DEVICE)


def to_many_places(calls: dict[str, Callable]) -> dict[str, Callable]:
    """The calls; a result lives on for a while, so that the next has another place.

    To some places in the GPU's memory a short call is slower by a tenth.
    """
    results = deque(maxlen=16)
    return {
        name: lambda call=call: results.append(call()) for name, call in calls.items()
    }


def medians(calls: dict[str, Callable], flush: torch.Tensor) -> dict[str, float]:
    """Median microseconds of each call; the calls take turns."""
    if GPU:
        calls = to_many_places(calls)
    rounds = []
    for _ in range(WARM_UP + ROUNDS):
        rounds.append([one_call(call, flush.sum) for call in calls.values()])
    times = zip(*rounds[WARM_UP:], strict=True)
    return dict(zip(calls, map(statistics.median, times), strict=True))


def measure(shape: tuple[int, int], flush: torch.Tensor) -> tuple[int, dict]:
    """Bytes that must move at least, and microseconds of copy, eager and opbook."""
    x = torch.randn(shape, device=DEVICE, dtype=DTYPE)
    weight = torch.randn(shape[-1:], device=DEVICE, dtype=DTYPE)
    calls = {
        "copy": x.clone,  # allocates its result, as the others do
        "eager": lambda: F.rms_norm(x, shape[-1:], weight),
        "opbook": lambda: opbook.rms_norm(x, weight),
    }
    # A kernel that is fast and wrong is of no use.
    torch.testing.assert_close(
        calls["opbook"](), calls["eager"](), rtol=2**-7, atol=1e-5
    )
    return 2 * x.nbytes + weight.nbytes, medians(calls, flush)


def versions() -> str:
    """The machine and the software, in one line."""
    if not GPU:
        capability = torch.backends.cpu.get_cpu_capability()
        return f"CPU ({capability}, 1 thread), torch {torch.__version__}, {DTYPE}"
    hip, cuda = torch.version.hip, torch.version.cuda
    runtime = f"ROCm {hip}" if hip else f"CUDA {cuda}"
    name = torch.cuda.get_device_name()
    return f"{name}, torch {torch.__version__}, {runtime}, {DTYPE}"


def main() -> None:
    """Print one row for each shape."""
    if not GPU:
        torch.set_num_threads(1)  # a second one makes the times of short calls jump
    shapes, flush = GPU_SHAPES if GPU else CPU_SHAPES, flush_buffer()
    with torch.inference_mode():
        found = {shape: measure(shape, flush) for shape in shapes}
    # Bytes in a microsecond are MB in a second.
    bandwidth = max(moved / times["copy"] for moved, times in found.values())
    print(versions())
    print(f"fastest copy {bandwidth / 1e3:.0f} GB/s; median of {ROUNDS}, cold cache")
    print("microseconds, and opbook's share of the fastest copy's bandwidth:")
    print(
        f"{'shape':>12} {'MB':>6} {'copy':>8} {'eager':>8} {'opbook':>8} {'share':>7}"
    )
    for shape, (moved, times) in found.items():
        name, megabytes = "x".join(map(str, shape)), moved / 1e6
        row = " ".join(f"{times[call]:8.1f}" for call in ("copy", "eager", "opbook"))
        share = moved / times["opbook"] / bandwidth
        print(f"{name:>12} {megabytes:6.1f} {row} {share:7.0%}")


if __name__ == "__main__":
    main()

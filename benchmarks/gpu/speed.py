"""Time opbook.rms_norm beside eager PyTorch and beside a copy of the same bytes.

On a GPU the clock is the GPU's own, and nothing is left in L2 from one call to the
next. Without a GPU it times the CPU kernels on smaller tensors.
"""

import random
import statistics
import time
from collections import deque
from collections.abc import Callable, Hashable
from functools import cache

import torch
import torch.nn.functional as F

import opbook

GPU = opbook.runs_on_gpu()
DEVICE = "cuda" if GPU else "cpu"
DTYPE = torch.bfloat16
ROUNDS = 101 if GPU else 15
WARM_UP = 20 if GPU else 2  # rounds: a GPU at rest has slow clocks
MOST_FLUSHES = 40
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


def measure(shape: tuple[int, int]) -> tuple[int, dict]:
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
    return 2 * x.nbytes + weight.nbytes, medians(calls)


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
    shapes = GPU_SHAPES if GPU else CPU_SHAPES
    with torch.inference_mode():
        found = {shape: measure(shape) for shape in shapes}
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

"""Draw the roofline of a machine
==============================

Measure how fast memory and arithmetic are, and how near an operator comes to them. An
operator cannot run faster than memory delivers its data, nor faster than the chip
computes. The picture of both limits is called a roofline.

It needs torch, and matplotlib for the chart.

.. topics:: 86 88
"""

import ctypes
import importlib.util
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Large enough to leave the caches, small enough to take little time.
SIDE, ELEMENTS = (8192, 1 << 28) if DEVICE == "cuda" else (512, 6 << 20)
torch.manual_seed(0)
torch.set_num_threads(1)  # one core of a CPU: its limits do not depend on the others
if sys.platform == "linux":  # keep freed memory: new pages would cost more than a copy
    for option in (-3, -1):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
        ctypes.CDLL(None).mallopt(option, 1 << 30)

# %%
# The fastest of a few runs is the one that was disturbed least. On a GPU, two events in
# the stream note when the work starts and when it ends.


def seconds(call: Callable[[], object]) -> float:
    """The time of the fastest run, after one that warms up."""
    call()
    times = []
    while len(times) < 4 or sum(times) < 0.1:
        if DEVICE == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 1000)
        else:
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
    return min(times)


# %%
# The two limits: a copy reads and writes every byte once and computes nothing. A matrix
# product of the vendor's library does little but multiply and add.

x = torch.randn(ELEMENTS // 4096, 4096, device=DEVICE)
target = torch.zeros_like(x)
bandwidth = 2 * x.nbytes / seconds(lambda: target.copy_(x))
a, b = torch.randn(2, SIDE, SIDE, device=DEVICE)
rate = 2 * SIDE**3 / seconds(lambda: torch.mm(a, b))
ridge = rate / bandwidth
print(f"copy {bandwidth / 1e9:.1f} GB/s, matrix product {rate / 1e9:.1f} GFLOP/s")
print(f"they meet at {ridge:.1f} FLOP/byte")

# %%
# What comes from the memory of the CPU to a GPU takes a far narrower way. Pageable
# memory is copied once more before, into pinned memory, which the GPU can read itself.

if DEVICE == "cuda":
    host = x.cpu()
    for name, source in {"pageable": host, "pinned": host.pin_memory()}.items():
        taken = seconds(lambda source=source: target.copy_(source, non_blocking=True))
        print(f"from {name:8} memory {x.nbytes / taken / 1e9:8.1f} GB/s")

# %%
# Each operator has an arithmetic intensity: operations for each byte that must move at
# least. That is one read of every input and one write of the output. RMSNorm is here
# twice, as one operator and composed of several, which move more bytes than they must.


def composed(x: torch.Tensor) -> torch.Tensor:
    """RMSNorm by operators that each read and write memory."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


n, products, places = x.numel(), 2 * SIDE**3, 3 * SIDE**2
work = {  # a call, its operations, and the elements it must move
    "x + 1": (lambda: x + 1, n, 2 * n),
    "F.rms_norm": (lambda: F.rms_norm(x, (4096,)), 3 * n, 2 * n),
    "composed norm": (lambda: composed(x), 3 * n, 2 * n),
    "linear, GELU": (lambda: F.gelu(F.linear(a, b)), products, places),
    "torch.mm": (lambda: torch.mm(a, b), products, places),
}
points = {}
print(f"{'':14}{'FLOP/byte':>10}{'GFLOP/s':>10}{'of the roof':>13}")
for name, (call, operations, elements) in work.items():
    intensity = operations / (elements * x.itemsize)
    reached = operations / seconds(call)
    points[name] = intensity, reached
    share = reached / min(rate, bandwidth * intensity)
    print(f"{name:14}{intensity:10.2f}{reached / 1e9:10.1f}{share:13.0%}")

# %%
# Left of the ridge, moving fewer bytes is all that helps. Right of it, the arithmetic
# counts. A point far below the roof is a kernel that can become faster, or work too
# small to fill the machine. A point above the roof found data in a cache, or left
# results there, or something else slowed the measurement of the limit.

if importlib.util.find_spec("matplotlib") is None:
    print("no chart: needs matplotlib")
    sys.exit()

import matplotlib.pyplot as plt

GREY = "#808080"  # readable on white and on black
figure, axis = plt.subplots(figsize=(8, 5), facecolor="none", layout="constrained")
span = [2**-5, ridge, 8 * max(ridge, SIDE / 6)]
roof = [min(rate, bandwidth * place) for place in span]
axis.loglog(span, roof, color="#5b8db8", linewidth=2.5)
axis.axvline(ridge, color=GREY, linewidth=0.8, linestyle=":")
for name, (intensity, reached) in points.items():
    axis.plot(intensity, reached, "o", color="#d9734e", markersize=8)
    above = name == "torch.mm"  # others may be as fast: their names stand below
    place = 1.25 if above else 0.75
    axis.text(1.15 * intensity, place * reached, name, color=GREY)
axis.set_xlabel("FLOP per byte moved", color=GREY)
axis.set_ylabel("FLOP/s", color=GREY)
axis.set_frame_on(False)
axis.tick_params(which="both", colors=GREY)
plt.show()

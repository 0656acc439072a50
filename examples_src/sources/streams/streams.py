"""What launches, streams, the allocator and graphs do, on a CUDA device."""

import time

import torch

torch.cuda.init()
side = torch.cuda.Stream()


# [busy]
def busy(milliseconds: float) -> None:
    """Keep the current stream busy: the kernel counts clock cycles."""
    torch.cuda._sleep(int(milliseconds * 2_000_000))  # the clock is about 2 GHz


# [/busy]


def warm_up() -> None:
    """Load every kernel used below: loading one may wait for the device."""
    ones = torch.ones(4, device="cuda")
    torch.zeros_like(ones).copy_(ones).fill_(2).mul_(2)
    busy(1)
    torch.cuda.synchronize()


def launch() -> None:
    """A launch returns at once; the work ends later."""
    start = time.perf_counter()
    busy(50)
    launched = time.perf_counter()
    torch.cuda.synchronize()
    ended = time.perf_counter()
    print(f"launch returned after {1000 * (launched - start):7.2f} ms")
    print(f"the work ended after  {1000 * (ended - start):7.2f} ms")


# [race]
def read_on_side(ordered: bool) -> list[float]:
    """Fill a tensor on the current stream, and read it on another."""
    data, seen = torch.zeros(2, 3, device="cuda")
    torch.cuda.synchronize()
    busy(50)
    data.fill_(1)  # waits its turn behind the busy kernel
    written = torch.cuda.Event()
    written.record()
    with torch.cuda.stream(side):
        if ordered:
            side.wait_event(written)
        seen.copy_(data)
    torch.cuda.synchronize()
    return seen.tolist()


# [/race]


# [reuse]
def free_early(recorded: bool) -> tuple[bool, float]:
    """Let go of a tensor that another stream has still to read."""
    torch.cuda.empty_cache()
    seen = torch.zeros(1 << 20, device="cuda")
    data = torch.ones(1 << 20, device="cuda")
    place = data.data_ptr()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        busy(50)
        seen.copy_(data)
    if recorded:
        data.record_stream(side)
    del data
    other = torch.full((1 << 20,), 7.0, device="cuda")
    torch.cuda.synchronize()
    return other.data_ptr() == place, seen[0].item()


# [/reuse]


# [graph]
def capture() -> None:
    """A graph keeps launches; a wait for the device cannot be kept."""
    x = torch.ones(3, device="cuda")
    good, bad = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(good):
        y = x * 2
    x.fill_(5)
    good.replay()
    print("replayed on new values:", y.tolist())
    try:
        with torch.cuda.graph(bad):
            (x * 2)[0].item()
    except RuntimeError as error:
        first = error.__context__ or error
        print("item() in a capture: ", str(first).splitlines()[0])


# [/graph]

warm_up()
launch()
print("side stream, no event:   ", read_on_side(ordered=False))
print("side stream, with event: ", read_on_side(ordered=True))
for recorded in (False, True):
    reused, value = free_early(recorded)
    name = "record_stream" if recorded else "freed early"
    print(f"{name:14} memory reused: {reused!s:5}  the side stream read {value}")
capture()

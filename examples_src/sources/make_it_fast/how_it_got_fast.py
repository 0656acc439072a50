"""Predict and measure each version of how_it_got_fast.cu on an NVIDIA GPU.

python3 examples_src/sources/make_it_fast/how_it_got_fast.py        times and errors
python3 examples_src/sources/make_it_fast/how_it_got_fast.py ncu    what ncu counts
"""

import ctypes
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import ncu
import nvcc
import torch
from clock import flush, flush_buffer, in_turns, medians
from torch import Tensor

SOURCE = Path(__file__).resolve().with_suffix(".cu")
LIBRARY = SOURCE.parents[3] / "build" / "how_it_got_fast.so"
NAMES = {
    1: "a thread a row",
    2: "a block a row",
    3: "shuffles",
    4: "16-byte loads",
    5: "kept in registers",
    6: "4 vectors a thread",
    7: "kept in L2",
}
NOTHING = 0
SHAPES = [(32768, 4096), (32768, 1024), (4096, 16384)]
ROWS_A_BLOCK = {1: 128}  # of the others: 1
FOLLOWED = (6, 7)  # is what the last step gains lost to who comes next?
EPS = 1e-6
ROUNDS = 61
HEADS = (
    ("rows at", "a block", "predicted", "median", "p95", "share of", "largest"),
    ("once", "alone, us", "us", "us", "us", "the copy", "error"),
)


def build() -> None:
    """Compile the versions into one library."""
    LIBRARY.parent.mkdir(exist_ok=True)
    nvcc.library(SOURCE, LIBRARY.parent)


def load() -> ctypes.CDLL:
    """The library, with the types of its two functions."""
    library = ctypes.CDLL(str(LIBRARY))
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    library.launch.restype = ctypes.c_char_p
    library.launch.argtypes = [ctypes.c_int, pointer, pointer, pointer, count, count]
    library.launch.argtypes += [ctypes.c_float, pointer]
    library.resident_blocks.argtypes = [ctypes.c_int, count, count]
    return library


def run(library: ctypes.CDLL, version: int, x: Tensor, weight: Tensor, y: Tensor):
    """Normalize the rows of x, on the current stream."""
    stream = torch.cuda.current_stream().cuda_stream
    pointers = (tensor.data_ptr() for tensor in (x, weight, y))
    error = library.launch(version, *pointers, *x.shape, EPS, stream)
    if error is not None:
        raise RuntimeError(f"version {version}: {error.decode()}")
    return y


def largest_error(result: Tensor, x: Tensor, weight: Tensor) -> float:
    """The largest relative error beside fp64. Rounding to bf16 alone makes 2**-8."""
    found = []
    for rows, results in zip(x.split(2048), result.split(2048), strict=True):
        exact = rows.double()
        exact = exact * torch.rsqrt(exact.square().mean(-1, keepdim=True) + EPS)
        exact *= weight.double()
        errors = (results.double() - exact).abs() / exact.abs().clamp_min(1e-30)
        found.append(errors.max())
    return torch.stack(found).max().item()


def checked(library: ctypes.CDLL, version: int, x: Tensor, weight: Tensor) -> float:
    """The version's error, if it is right: a wrong kernel is not worth its time."""
    not_written = torch.full_like(x, torch.nan)
    error = largest_error(run(library, version, x, weight, not_written), x, weight)
    if not error < 2**-8:  # NaN is not
        raise ValueError(f"version {version}, {tuple(x.shape)}: error {error}")
    return error


def alone(library, x, weight, y) -> dict[int, float]:
    """Microseconds of one block of each version that has the GPU to itself.

    Another block has loaded code and weight before.
    """

    def a_block(version: int, number: int) -> None:
        rows = ROWS_A_BLOCK.get(version, 1)
        part = slice(number * rows, (number + 1) * rows)
        run(library, version, x[part], weight, y[part])

    def before(version: int) -> None:
        flush()
        a_block(version, 0)

    versions = (NOTHING, *NAMES)
    times = in_turns(
        {version: partial(a_block, version, 1) for version in versions},
        ROUNDS,
        {version: partial(before, version) for version in versions},
    )
    return {version: median(found) for version, found in times.items()}


def predicted(copy: float, nothing: float, block: float, turns: float) -> float:
    """Microseconds: what memory needs for the bytes, or what the waiting adds up to.

    Args:
        copy: Time of a copy, which moves the same bytes.
        nothing: Time of an empty kernel.
        block: Time of one block alone.
        turns: All rows, by those that the GPU holds at once.
    """
    waiting = nothing + turns * (block - nothing)
    return max(copy, waiting)


def rows_at_once(library: ctypes.CDLL, version: int, shape: tuple[int, int]) -> int:
    """Rows whose blocks the GPU holds at the same time."""
    resident = library.resident_blocks(version, *shape)
    if resident <= 0:
        raise RuntimeError(f"version {version}: occupancy {resident}")
    processors = torch.cuda.get_device_properties("cuda").multi_processor_count
    return min(shape[0], resident * processors * ROWS_A_BLOCK.get(version, 1))


def followed(call: Callable[[], Tensor], to: Tensor, other: Tensor | None) -> Callable:
    """The call, and behind it a copy of what it wrote, or of another tensor."""

    def both() -> None:
        result = call()
        to.copy_(result if other is None else other)

    return both


def report(library: ctypes.CDLL, shape: tuple[int, int]) -> None:
    """Print one line for each version."""
    x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(shape[1], device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    errors = {each: checked(library, each, x, weight) for each in NAMES}
    short = alone(library, x, weight, y)
    calls = {each: partial(run, library, each, x, weight, y) for each in NAMES}
    calls = {"copy": partial(y.copy_, x)} | calls
    times = in_turns(calls, ROUNDS)

    copy, nothing = median(times["copy"]), short[NOTHING]
    bandwidth = 2 * x.nbytes / copy / 1e3  # bytes in a nanosecond are GB in a second
    print(f"\n{shape[0]} rows of {shape[1]}, {2 * x.nbytes / 1e6:.0f} MB to move")
    print(f"copy {copy:.1f} us, {bandwidth:.0f} GB/s; empty kernel {nothing:.1f} us")
    for heads in HEADS:
        print(f"{'':20}" + "".join(f"{head:>10}" for head in heads))
    for version, name in NAMES.items():
        at_once = rows_at_once(library, version, shape)
        guess = predicted(copy, nothing, short[version], shape[0] / at_once)
        middle, late = median(times[version]), quantiles(times[version], n=20)[-1]
        shown = (short[version], guess, middle, late)
        print(f"{version} {name:18}{at_once:10}", end="")
        print("".join(f"{time:10.1f}" for time in shown), end="")
        print(f"{copy / middle:10.0%}{errors[version]:10.1e}")
    to, another = torch.empty_like(x), torch.randn_like(x)
    for what, other in {"the result": None, "another tensor": another}.items():
        pairs = {each: followed(calls[each], to, other) for each in FOLLOWED}
        pairs = medians(pairs, ROUNDS)
        words = (f"{each} {time:.1f} us" for each, time in pairs.items())
        print(f"with a copy of {what} behind it:", ", ".join(words))


def measure() -> None:
    """Time all versions on all shapes."""
    build()
    library = load()
    cache = f"L2 cache of {flush_buffer().nbytes / 8e6:.0f} MB"
    versions = f"torch {torch.__version__}, CUDA {torch.version.cuda}"
    print(f"{torch.cuda.get_device_name()}, {cache}, {versions}, bf16")
    print(f"median and 95th percentile of {ROUNDS} rounds, cold cache")
    with torch.inference_mode():
        for shape in SHAPES:
            report(library, shape)


# ---- What ncu counts

STALLED = "smsp__average_warps_issue_stalled"
METRICS = {
    "read": "dram__bytes_read.sum",
    "written": "dram__bytes_write.sum",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2": "lts__t_sectors_srcunit_tex_op_read.sum",
    "sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "memory": f"{STALLED}_long_scoreboard_per_issue_active.ratio",
    "barrier": f"{STALLED}_barrier_per_issue_active.ratio",
}
# Two words at the head of a column, and what it shows, made of the metrics above.
COLUMNS = {
    ("requests", "M"): lambda m: f"{m['requests'] / 1e6:.1f}",
    ("sectors", "each"): lambda m: f"{m['sectors'] / m['requests']:.1f}",
    ("from L2", "MB"): lambda m: f"{32 * m['l2'] / 1e6:.0f}",
    ("read", "MB"): lambda m: f"{m['read'] / 1e6:.0f}",
    ("written", "MB"): lambda m: f"{m['written'] / 1e6:.0f}",
    ("DRAM", "%"): lambda m: f"{m['dram']:.0f}",
    ("warps", "%"): lambda m: f"{m['warps']:.0f}",
    ("memory", "wait"): lambda m: f"{m['memory']:.1f}",
    ("barrier", "wait"): lambda m: f"{m['barrier']:.1f}",
}
KERNELS = "thread_a_row|block_a_row|wide_loads|row_in_registers"


def launch_each() -> None:
    """What ncu watches: each version twice, each time behind a flush."""
    library = load()
    x = torch.randn(SHAPES[0], device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(SHAPES[0][1], device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    with torch.inference_mode():
        for version in NAMES:
            for _ in range(2):
                flush()
                run(library, version, x, weight, y)
    torch.cuda.synchronize()


def second_launches(metrics: list[str], *options: str) -> list[dict]:
    """What ncu counts of each version's second launch."""
    return ncu.counted(__file__, KERNELS, metrics, 2 * len(NAMES), *options)[1::2]


def cell(column: Callable, values: dict[str, float]) -> str:
    """One column of one launch; a dash where this ncu lacks a metric."""
    try:
        return column(values)
    except KeyError:
        return "-"


def count() -> None:
    """Print what ncu counts, a version a line."""
    build()
    names = {metric: key for key, metric in METRICS.items()}
    launches = [
        {key: found[metric] for metric, key in names.items() if metric in found}
        for found in second_launches(list(names))
    ]
    rows, hidden = SHAPES[0]
    print(f"{torch.cuda.get_device_name()}, {rows} rows of {hidden} bf16, ", end="")
    print(f"{rows * hidden * 2 / 1e6:.0f} MB; ncu --clock-control none, cold cache")
    for heads in zip(*COLUMNS, strict=True):
        print(f"{'':20}" + "".join(f"{head:>8}" for head in heads))
    for (version, name), values in zip(NAMES.items(), launches, strict=True):
        cells = "".join(f"{cell(make, values):>8}" for make in COLUMNS.values())
        print(f"{version} {name:18}{cells}")
    # One metric is counted in one pass: a second one would find the first one's cache.
    read = METRICS["read"]
    found = second_launches([read], "--cache-control", "none")
    megabytes = (f"{each[read] / 1e6:.0f}" for each in found)
    print("\nread, MB, if the flush alone clears the cache, 1 to 7:", *megabytes)


if __name__ == "__main__":
    {"ncu": count, "launch": launch_each}.get(sys.argv[-1], measure)()

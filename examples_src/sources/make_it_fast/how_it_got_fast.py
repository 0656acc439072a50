"""Predict and measure each version of how_it_got_fast.cu on an NVIDIA GPU.

python3 examples_src/sources/make_it_fast/how_it_got_fast.py        times and errors
python3 examples_src/sources/make_it_fast/how_it_got_fast.py ncu    what ncu counts
"""

import ctypes
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import ncu
import nvcc
import torch
from clock import flush, in_turns, versions
from torch import Tensor

SOURCE = Path(__file__).resolve().with_suffix(".cu")
ROOT = SOURCE.parents[3]
HEADERS = [ROOT / "starter" / kind / "csrc" for kind in ("cpp", "rows")]
LIBRARY = ROOT / "build" / "how_it_got_fast.so"
NAMES = {
    1: "a thread a row",
    2: "a block a row",
    3: "shuffles",
    4: "maximum with sum",
    5: "16-byte loads",
    6: "4 loads a thread",
    7: "rows share a block",
    8: "row in registers",
}
NOTHING = 0
BF16, FP32 = torch.bfloat16, torch.float32
CASES = [(32768, 4096, BF16), (32768, 4096, FP32), (1048576, 128, BF16)]
# Of a probability, relative: bf16 rounds by 2**-8; fp32 rounds the difference of two
# numbers of about 10, which moves its exponential by a few 2**-20.
MOST_ERROR = {BF16: 2**-8, FP32: 2**-17}
ROUNDS = 61
COLUMNS = {  # of the table: two words above each other, the key, and how it is shown
    ("rows at", "once"): ("rows_at_once", "10"),
    ("a block", "alone, us"): ("alone", "10.1f"),
    ("predicted", "us"): ("predicted", "10.1f"),
    ("median", "us"): ("median", "10.1f"),
    ("p95", "us"): ("p95", "10.1f"),
    ("share of", "the copy"): ("share", "10.0%"),
    ("largest", "error"): ("error", "10.1e"),
}


def build() -> None:
    """Compile the versions into one library."""
    LIBRARY.parent.mkdir(exist_ok=True)
    nvcc.library(SOURCE, LIBRARY.parent, *(f"-I{folder}" for folder in HEADERS))


def load() -> ctypes.CDLL:
    """The library, with the types of its two functions."""
    library = ctypes.CDLL(str(LIBRARY))
    pointer, count, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    library.launch.restype = ctypes.c_char_p
    library.launch.argtypes = [number, number, pointer, pointer, pointer, count, count]
    library.launch.argtypes += [pointer]
    library.occupancy_of.restype = None
    library.occupancy_of.argtypes = [number, number, count, pointer, pointer]
    return library


def outputs(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Room for the probabilities and the logarithms."""
    return torch.empty_like(scores), scores.new_empty(len(scores), dtype=FP32)


def run(library: ctypes.CDLL, version: int, scores: Tensor, *results: Tensor):
    """Compute both results, on the current stream; allocate what is not given."""
    results = results or outputs(scores)
    stream = torch.cuda.current_stream().cuda_stream
    pointers = (tensor.data_ptr() for tensor in (scores, *results))
    size = scores.element_size()
    error = library.launch(version, size, *pointers, *scores.shape, stream)
    if error is not None:
        raise RuntimeError(f"version {version}: {error.decode()}")
    return results


def eager(scores: Tensor) -> tuple[Tensor, Tensor]:
    """What the versions compute, by eager PyTorch; logarithms in fp32 or wider."""
    wide = torch.promote_types(scores.dtype, FP32)
    return torch.softmax(scores, -1), torch.logsumexp(scores.to(wide), -1)


def largest_error(results: tuple[Tensor, Tensor], scores: Tensor) -> float:
    """The largest relative error of a probability, beside eager in fp64.

    The logarithms are compared, too.
    """
    found = []
    split = zip(*(tensor.chunk(64) for tensor in (scores, *results)), strict=True)
    for part, probs, lse in split:
        exact, exact_lse = eager(part.double())
        found.append(((probs.double() - exact).abs() / exact).max())
        torch.testing.assert_close(lse.double(), exact_lse, rtol=2**-16, atol=0)
    return torch.stack(found).max().item()


def checked(name: str, results: tuple[Tensor, Tensor], scores: Tensor) -> float:
    """The error, if it is small: a wrong kernel is not worth its time."""
    error = largest_error(results, scores)
    if not error < MOST_ERROR[scores.dtype]:  # NaN is not
        raise ValueError(f"{name}, {tuple(scores.shape)}: error {error}")
    return error


class Versions:
    """The versions in one library, for some scores.

    Attributes:
        rows_of_block: Rows that one block of each version computes.
        rows_at_once: Rows whose blocks the GPU holds at the same time.
    """

    def __init__(self, library: ctypes.CDLL, scores: Tensor) -> None:
        self.library, self.scores = library, scores
        self.rows_of_block, self.rows_at_once = {NOTHING: 1}, {}
        for version in NAMES:
            rows, blocks = ctypes.c_int(), ctypes.c_int()
            shape = version, scores.element_size(), scores.shape[1]
            library.occupancy_of(*shape, ctypes.byref(rows), ctypes.byref(blocks))
            if blocks.value <= 0:
                raise RuntimeError(f"version {version}: occupancy {blocks.value}")
            processors = torch.cuda.get_device_properties("cuda").multi_processor_count
            at_once = rows.value * blocks.value * processors
            self.rows_of_block[version] = rows.value
            self.rows_at_once[version] = min(len(scores), at_once)

    def calls(self) -> dict[int, Callable]:
        """A call of each version, which allocates its results."""
        return {each: partial(run, self.library, each, self.scores) for each in NAMES}

    def errors(self) -> dict[int, float]:
        """The error of each version, whose results begin as NaN."""
        found = {}
        for version, name in NAMES.items():
            results = [each.fill_(torch.nan) for each in outputs(self.scores)]
            run(self.library, version, self.scores, *results)
            found[version] = checked(name, results, self.scores)
        return found

    def alone(self) -> dict[int, float]:
        """Microseconds of one block of each version that has the GPU to itself.

        Another block has loaded the code before.
        """
        results = outputs(self.scores)

        def a_block(version: int, number: int) -> None:
            rows = self.rows_of_block[version]
            part = slice(number * rows, (number + 1) * rows)
            tensors = (tensor[part] for tensor in (self.scores, *results))
            run(self.library, version, *tensors)

        def before(version: int) -> None:
            flush()
            a_block(version, 0)

        each = (NOTHING, *NAMES)
        times = in_turns(
            {version: partial(a_block, version, 1) for version in each},
            ROUNDS,
            {version: partial(before, version) for version in each},
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


def report(library: ctypes.CDLL, rows: int, columns: int, dtype: torch.dtype) -> dict:
    """Time each version and PyTorch's two ways; return and print what was found."""
    scores = torch.randn(rows, columns, device="cuda", dtype=dtype)
    ours = Versions(library, scores)
    compiled = torch.compile(eager, dynamic=False)
    peers = {
        "eager": partial(eager, scores),
        "torch.compile": partial(compiled, scores),
    }
    errors = {name: largest_error(call(), scores) for name, call in peers.items()}
    errors |= ours.errors()
    alone = ours.alone()
    times = in_turns({"copy": scores.clone} | peers | ours.calls(), ROUNDS)

    copy, nothing = median(times.pop("copy")), alone[NOTHING]
    found = {}
    for key, taken in times.items():
        found[key] = {"name": f"{key} {NAMES[key]}" if key in NAMES else key}
        found[key] |= {"median": median(taken), "p95": quantiles(taken, n=20)[-1]}
        found[key] |= {"share": copy / median(taken), "error": errors[key]}
    for version, at_once in ours.rows_at_once.items():
        guess = predicted(copy, nothing, alone[version], rows / at_once)
        found[version] |= {"rows_at_once": at_once, "alone": alone[version]}
        found[version] |= {"predicted": guess}
    case = {"rows": rows, "columns": columns, "dtype": str(dtype).split(".")[1]}
    case |= {"megabytes": 2 * scores.nbytes / 1e6, "copy": copy, "nothing": nothing}
    case |= {"versions": [*found.values()]}
    show(case)
    return case


def show(case: dict) -> None:
    """Print the table of a case."""
    print(f"\n{case['rows']} rows of {case['columns']}, {case['dtype']}, ", end="")
    print(f"{case['megabytes']:.0f} MB to move: copy {case['copy']:.1f} us", end="")
    bandwidth = 1e3 * case["megabytes"] / case["copy"]  # MB in a millisecond: GB/s
    print(f", {bandwidth:.0f} GB/s; empty kernel {case['nothing']:.1f} us")
    for heads in zip(*COLUMNS, strict=True):
        print(f"{'':20}" + "".join(f"{head:>10}" for head in heads))
    for row in case["versions"]:
        cells = (
            f"{row[column]:{how}}" if column in row else f"{'':10}"
            for column, how in COLUMNS.values()
        )
        print(f"{row['name']:20}{''.join(cells)}")


def measure() -> None:
    """Time all versions in all cases."""
    build()
    library = load()
    print(versions())
    print(f"median and 95th percentile of {ROUNDS} rounds, cold cache")
    with torch.inference_mode():
        found = [report(library, *case) for case in CASES]
    if file := os.environ.get("RECORD_DATA"):
        Path(file).write_text(json.dumps(found))


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
    "exp": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "issued": "sm__inst_issued.avg.pct_of_peak_sustained_active",
    "memory": f"{STALLED}_long_scoreboard_per_issue_active.ratio",
    "barrier": f"{STALLED}_barrier_per_issue_active.ratio",
}
# Two words at the head of a column, and what it shows, made of the metrics above.
COUNTED = {
    ("requests", "M"): lambda m: f"{m['requests'] / 1e6:.1f}",
    ("sectors", "each"): lambda m: f"{m['sectors'] / m['requests']:.1f}",
    ("from L2", "MB"): lambda m: f"{32 * m['l2'] / 1e6:.0f}",
    ("read", "MB"): lambda m: f"{m['read'] / 1e6:.0f}",
    ("written", "MB"): lambda m: f"{m['written'] / 1e6:.0f}",
    ("DRAM", "%"): lambda m: f"{m['dram']:.0f}",
    ("warps", "%"): lambda m: f"{m['warps']:.0f}",
    ("exp unit", "%"): lambda m: f"{m['exp']:.0f}",
    ("issued", "%"): lambda m: f"{m['issued']:.0f}",
    ("memory", "wait"): lambda m: f"{m['memory']:.1f}",
    ("barrier", "wait"): lambda m: f"{m['barrier']:.1f}",
}
KERNELS = "thread_a_row|block_a_row|row_kernel|row_in_registers"
WATCHED = (CASES[0], CASES[2])


def launch_each() -> None:
    """What ncu watches: each version twice, each time behind a flush."""
    library = load()
    for rows, columns, dtype in WATCHED:
        scores = torch.randn(rows, columns, device="cuda", dtype=dtype)
        results = outputs(scores)
        for version in NAMES:
            for _ in range(2):
                flush()
                run(library, version, scores, *results)
    torch.cuda.synchronize()


def cell(column: Callable, values: dict[str, float]) -> str:
    """One column of one launch; a dash where this ncu lacks a metric."""
    try:
        return column(values)
    except KeyError:
        return "-"


def count() -> None:
    """Print what ncu counts of each version's second launch, a version a line."""
    build()
    names = {metric: key for key, metric in METRICS.items()}
    launches = 2 * len(NAMES) * len(WATCHED)
    found = ncu.counted(__file__, KERNELS, list(names), launches)[1::2]
    print(f"{torch.cuda.get_device_name()}; ncu --clock-control none, cold cache")
    for rows, columns, dtype in WATCHED:
        size = rows * columns * dtype.itemsize / 1e6
        print(f"\n{rows} rows of {columns}, {dtype}, {size:.0f} MB")
        for heads in zip(*COUNTED, strict=True):
            print(f"{'':20}" + "".join(f"{head:>9}" for head in heads))
        for version, name in NAMES.items():
            counted = found.pop(0)
            values = {key: counted[m] for m, key in names.items() if m in counted}
            cells = "".join(f"{cell(make, values):>9}" for make in COUNTED.values())
            print(f"{version} {name:18}{cells}")


if __name__ == "__main__":
    {"ncu": count, "launch": launch_each}.get(sys.argv[-1], measure)()

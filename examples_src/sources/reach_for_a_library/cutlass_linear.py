"""Build reach_cutlass::linear_gelu with CUTLASS, compare it, time it on a Hopper GPU.

The headers come from PyPI: pip install --no-deps nvidia-cutlass==4.2.0.0
"""

import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import clock
import nvcc
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.cpp_extension import include_paths, library_paths

HERE = Path(__file__).resolve().parent
SOURCES = [HERE / "cutlass_linear.cu", HERE / "cutlass_linear_op.cpp"]
SHAPES = [(8192, 4096, 4096), (8192, 4096, 16384), (64, 4096, 4096)]
ROUNDS = 51


def headers() -> Path:
    """The folder with CUTLASS's headers, which the package brings along."""
    found = importlib.util.find_spec("cutlass_library")
    if found is None:
        sys.exit("no CUTLASS: pip install --no-deps nvidia-cutlass==4.2.0.0")
    return Path(found.origin).parent / "source" / "include"


def build(library: Path) -> None:
    """Compile the operator for sm_90a: plain sm_90 lacks the instructions it needs."""
    # Without NDEBUG, the asserts of CUTLASS are in the kernel and slow it down.
    flags = "-shared -std=c++20 -O3 -DNDEBUG -arch=sm_90a --expt-relaxed-constexpr"
    flags = [*flags.split(), "-Xcompiler=-fPIC,-fvisibility=hidden", "-DUSE_CUDA"]
    flags += ["-DTORCH_TARGET_VERSION=0x020b000000000000"]
    flags += [f"-isystem={path}" for path in (headers(), *include_paths())]
    link = [*(f"-L{path}" for path in library_paths()), "-lc10"]
    link += ["-ltorch_cpu", "-ltorch_cuda"]
    subprocess.run([nvcc.path(), *flags, *SOURCES, "-o", library, *link], check=True)


def load(library: Path) -> None:
    """Load the operator, and give it a fake kernel."""
    torch.ops.load_library(library)

    @torch.library.register_fake("reach_cutlass::linear_gelu")
    def _(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return input.new_empty((*input.shape[:-1], weight.shape[0]))


def make(rows: int, depth: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """Input, weight and bias whose product is as large as a trained layer's."""
    options = {"device": "cuda", "dtype": torch.bfloat16}
    x, b = torch.randn(rows, depth, **options), torch.randn(columns, **options)
    return x, torch.randn(columns, depth, **options) / depth**0.5, b


def exact(x: Tensor, w: Tensor, b: Tensor | None, form: str = "none") -> Tensor:
    """The result in fp64."""
    bias = None if b is None else b.double()
    return F.gelu(F.linear(x.double(), w.double(), bias), approximate=form)


def check() -> None:
    """Compare many shapes, also those that are no multiple of a tile; then errors."""
    operator = torch.ops.reach_cutlass.linear_gelu
    count = 0
    for rows in (1, 63, 128, 129, 1000):
        for depth in (8, 72, 4096):
            for columns in (8, 256, 264, 1032):
                x, w, b = make(rows, depth, columns)
                for bias in (b, None):
                    actual = operator(x, w, bias).double()
                    expected = exact(x, w, bias)
                    torch.testing.assert_close(actual, expected, rtol=2**-7, atol=5e-4)
                    count += 1
    print(f"{count} shapes agree with fp64")
    x, w, b = make(64, 128, 96)
    torch.testing.assert_close(
        operator(x[None], w.t().contiguous().t(), b)[0].double(),
        exact(x, w, b),
        rtol=2**-7,
        atol=5e-4,
    )
    assert operator(x[:0], w, b).shape == (0, 96)
    torch.library.opcheck(operator.default, (x, w, b))
    print("opcheck passes")
    wrong = {"dtype": (x.float(), w, b), "width": (x[:, :12], w[:, :12], b)}
    wrong["device"] = (x, w.cpu(), b)
    wrong["address"] = (torch.cat([x.flatten(), b])[4:-92].view(64, 128), w, b)
    for arguments in wrong.values():
        try:
            operator(*arguments)
        except RuntimeError as error:
            print(str(error).partition("\n")[0])
        else:
            sys.exit("a wrong argument was not noticed")


def report(shape: tuple[int, int, int]) -> None:
    """Print time and error of each contender."""
    x, w, b = make(*shape)
    ours = torch.ops.reach_cutlass.linear_gelu
    calls = {
        "F.linear alone": ("", lambda: F.linear(x, w, b)),
        "eager": ("none", lambda: F.gelu(F.linear(x, w, b))),
        "CUTLASS": ("none", lambda: ours(x, w, b)),
        "_addmm_activation": (
            "tanh",
            lambda: torch._addmm_activation(b, x, w.t(), use_gelu=True),
        ),
    }
    times = clock.medians({name: call for name, (_, call) in calls.items()}, ROUNDS)
    rows, depth, columns = shape
    print(f"\n{rows} rows, {depth} inputs, {columns} outputs")
    print(f"{'':26}{'GELU':>6}{'us':>10}{'TFLOP/s':>10}{'error':>10}")
    for name, (form, call) in calls.items():
        error = "-"
        if form:
            reference = exact(x, w, b, form)
            error = f"{((call() - reference).norm() / reference.norm()).item():.2e}"
        rate = 2 * rows * depth * columns / times[name] / 1e6
        print(f"{name:26}{form:>6}{times[name]:10.1f}{rate:10.0f}{error:>10}")


def main() -> None:
    """Build, compare, and time."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        build(library := Path(folder, "cutlass_linear.so"))
        print(f"compiled in {time.perf_counter() - begin:.0f} s")
        load(library)
    print(f"{clock.versions()}; median of {ROUNDS}, cold cache")
    torch.manual_seed(0)
    with torch.no_grad():
        check()
        for shape in SHAPES:
            report(shape)


if __name__ == "__main__":
    main()

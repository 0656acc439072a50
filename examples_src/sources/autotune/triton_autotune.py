"""Time every config of two tuned kernels, and the Triton operators beside eager.

Without a GPU it runs the same calls interpreted, on small tensors: the numbers are
then those of the interpreter, and the tuned kernel of the package has one config.
"""

import os
from collections.abc import Callable

import torch
import torch.nn.functional as F

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import clock
import triton
import triton.language as tl

import opbook.triton as ops
from opbook.triton.linear import bucket_of, grid_of, linear_kernel, prepare_tma

SILU_CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in ((256, 2), (1024, 4), (4096, 8), (8192, 16))
]
COUNTS = (1 << 16, 1 << 20, 1 << 26) if clock.GPU else (1 << 10, 1 << 12, 1 << 13)
PRODUCTS = ((16, 4096, 4096), (512, 4096, 4096), (8192, 4096, 4096))
WIDTH = 1024
SHAPES = ((16, 4096), (2048, 4096), (16384, 4096), (1024, 32768))
if not clock.GPU:
    PRODUCTS = tuple((m // 128 or 1, n // 64, k // 64) for m, n, k in PRODUCTS)
    WIDTH = 8
    SHAPES = tuple((rows // 1024 or 1, size // 64) for rows, size in SHAPES)


@triton.autotune(SILU_CONFIGS if clock.GPU else SILU_CONFIGS[:1], key=["count"])
@triton.jit
def silu_kernel(input, output, count, BLOCK: tl.constexpr):
    """Multiply by the sigmoid, one block for each program."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    x = tl.load(input + place, mask=inside).to(tl.float32)
    y = (x * tl.sigmoid(x)).to(output.dtype.element_ty)
    tl.store(output + place, y, mask=inside)


def tensor(*shape: int) -> torch.Tensor:
    """Random numbers in the dtype of all measurements."""
    return torch.randn(shape, device=clock.DEVICE, dtype=clock.DTYPE)


def equal(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """A kernel that is fast and wrong is of no use."""
    torch.testing.assert_close(actual, expected, rtol=2**-6, atol=2**-6)


def config_name(config: triton.Config) -> str:
    """Block, warps and stages, in a few characters."""
    block = "x".join(str(size) for size in config.kwargs.values())
    return f"{block}, {config.num_warps} warps, {config.num_stages} stages"


def time_configs(
    kernel, configs, launch: Callable, eager: Callable
) -> tuple[dict[str, float], str]:
    """Microseconds of each config and of eager, and the name of the tuner's choice.

    Args:
        kernel: What ``triton.autotune`` returned.
        configs: Those to time.
        launch: Takes a kernel and the config's arguments; returns the result.
        eager: The same in PyTorch.
    """
    expected = eager()
    equal(launch(kernel, {}), expected)  # tunes
    chosen = config_name(kernel.best_config)
    calls = {"eager": eager}
    for config in configs:
        # Past the tuner: the kernel under it takes the config as arguments.
        options = config.all_kwargs()
        try:
            equal(launch(kernel.fn, options), expected)
        except triton.runtime.errors.OutOfResources:
            continue  # this GPU has too little shared memory for it
        calls[config_name(config)] = lambda o=options: launch(kernel.fn, o)
    return clock.medians(calls), chosen


def silu(input: torch.Tensor) -> tuple[Callable, Callable]:
    """Give the launch and eager for one input."""

    def launch(kernel, options):
        output, count = torch.empty_like(input), input.numel()
        grid = lambda config: (triton.cdiv(count, config["BLOCK"]),)  # noqa: E731
        kernel[grid](input, output, count, **options)
        return output

    return launch, lambda: F.silu(input)


def product(m: int, n: int, k: int) -> tuple[Callable, Callable]:
    """Give the launch and eager for ``a @ b.T``."""
    a, b = tensor(m, k), tensor(n, k) / k**0.5

    def launch(kernel, options):
        output = a.new_empty(m, n)
        # The interpreter multiplies the bit patterns of bf16.
        x, y = (a, b) if clock.GPU else (a.float(), b.float())
        tma = prepare_tma(x, y)
        kernel[grid_of(x, y, tma)](
            x, y, None, output, m, bucket_of(m), n, k, *x.stride(), *y.stride(),
            HAS_BIAS=False, GELU=False, SPLITS=1, TMA=tma, **options,
        )  # fmt: skip
        return output

    return launch, lambda: a @ b.t()


def print_configs(title: str, columns: dict[str, tuple]) -> None:
    """Print one row for each config, and a star at what the tuner chose."""
    print(f"\n{title:34}" + "".join(f"{name:>16}" for name in columns))
    names = list(dict.fromkeys(n for times, _ in columns.values() for n in times))
    for name in [*names[1:], names[0]]:
        row = ""
        for times, chosen in columns.values():
            value = f"{times[name]:.1f}" if name in times else "no memory"
            row += f"{value:>15}" + ("*" if name == chosen else " ")
        print(f"{name:34}{row}".rstrip())


def beside_eager(rows: int, length: int) -> dict[str, dict[str, float]]:
    """Microseconds of the package's operators and of eager, for one shape."""
    x, weight, bias = tensor(rows, length), tensor(length), tensor(WIDTH)
    layer = tensor(WIDTH, length) / length**0.5
    pairs = {
        "scale": (lambda: x * 2, lambda: ops.scale(x, 2.0)),
        "softmax": (lambda: F.softmax(x, -1), lambda: ops.softmax(x)),
        "rms_norm": (
            lambda: F.rms_norm(x, (length,), weight, 1e-6),
            lambda: ops.rms_norm(x, weight),
        ),
        "linear_gelu": (
            lambda: F.gelu(F.linear(x, layer, bias)),
            lambda: ops.linear_gelu(x, layer, bias),
        ),
    }
    found = {}
    for name, (eager, ours) in pairs.items():
        equal(ours(), eager())
        found[name] = clock.medians({"eager": eager, "opbook": ours})
    return found


def main() -> None:
    """Print two tables of configs and one of operators."""
    print(f"{clock.versions()}, Triton {triton.__version__}")
    print(f"microseconds, median of {clock.ROUNDS}, cold cache; * the tuner's choice")
    with torch.inference_mode():
        columns = {
            f"{count}": time_configs(
                silu_kernel, silu_kernel.configs, *silu(tensor(count))
            )
            for count in COUNTS
        }
        print_configs("silu, elements", columns)
        columns = {
            f"{m}x{n}x{k}": time_configs(
                linear_kernel, linear_kernel.configs, *product(m, n, k)
            )
            for m, n, k in PRODUCTS
        }
        print_configs("matrix product, m x n x k", columns)
        print(f"\n{'opbook.triton':14}{'input':>14}{'eager':>10}{'opbook':>10}")
        for shape in SHAPES:
            for name, times in beside_eager(*shape).items():
                where = "x".join(map(str, shape))
                row = f"{name:14}{where:>14}{times['eager']:10.1f}"
                print(f"{row}{times['opbook']:10.1f}")


if __name__ == "__main__":
    main()

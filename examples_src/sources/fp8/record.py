"""The operator of quantize.py on a GPU: casts, errors, speed, and products of FP8."""

import statistics
from functools import partial

import quantize as q
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from benchmark_honestly import timed_once
from torch import Tensor

EPS = 1e-6
SHAPES = [(64, 4096), (2048, 4096), (16384, 4096), (8192, 8192)]
ROUNDS, WARM_UP = 41, 10


def medians(calls: dict) -> dict[str, float]:
    """Microseconds of each call, in turns, with a cold cache."""
    cache = torch.cuda.get_device_properties().L2_cache_size
    flush = torch.zeros(2 * cache, device="cuda").sum  # eight times the cache
    times = {name: [] for name in calls}
    for _ in range(WARM_UP + ROUNDS):
        for name, call in calls.items():
            times[name].append(1e6 * timed_once(call, flush))
    return {name: statistics.median(took[WARM_UP:]) for name, took in times.items()}


@triton.jit
def cast_kernel(input, output, COUNT: tl.constexpr):
    """Cast without a limit."""
    place = tl.arange(0, COUNT)
    tl.store(output + place, tl.load(input + place).to(tl.float8e4nv))


def casts() -> None:
    """Cast numbers past the end of e4m3fn by each way, with no clamp."""
    x = torch.tensor([448.0, 464.0, 465.0, 1e6], device="cuda")
    by_triton = torch.empty_like(x, dtype=q.FP8)
    cast_kernel[(1,)](x, by_triton, COUNT=4)
    by_compiler = torch.compile(lambda x: x.to(q.FP8))(x)
    print("cast of", x.tolist())
    print("  eager, CPU", x.cpu().to(q.FP8).float().tolist())
    print("  eager, GPU", x.to(q.FP8).float().tolist())
    print("  Triton    ", by_triton.float().tolist())
    print("  compiled  ", by_compiler.float().tolist())


def two_kernels(input, residual, weight):
    """A kernel that writes y, and a kernel that reads it again."""
    y, sums = q.add_rms_norm(input, residual, weight, EPS)
    return *q.quantize_rows(y), sums


def one_kernel(input, residual, weight):
    """Y never leaves the registers."""
    return q.add_rms_norm_fp8(input, residual, weight, EPS)


def plain(input, residual, weight):
    """PyTorch's operators."""
    return q.eager(input, residual, weight, EPS)


def times() -> None:
    """Print the error and the microseconds of each way."""
    print(f"bf16, median of {ROUNDS}, cold cache; error as a share of what is allowed")
    print(f"{'shape':>12}  {'way':14}{'us':>8}{'error':>8}")
    for shape in SHAPES:
        input, residual = torch.randn(2, *shape, device="cuda", dtype=torch.bfloat16)
        weight = torch.randn(shape[1], device="cuda", dtype=torch.bfloat16)
        sums = (input + residual).double()
        exact = F.rms_norm(sums, weight.shape, weight.double(), EPS)
        torch._dynamo.reset()
        ways = {
            "eager": plain,
            "torch.compile": torch.compile(plain, fullgraph=True, dynamic=False),
            "two kernels": two_kernels,
            "one kernel": one_kernel,
        }
        calls, errors = {"copy": input.clone}, {"copy": 0.0}
        for name, way in ways.items():
            calls[name] = partial(way, input, residual, weight)
            values, scales, total = calls[name]()
            torch.testing.assert_close(total.double(), sums, rtol=2**-8, atol=0)
            errors[name] = q.worst(values, scales, exact)
        found = medians(calls)
        for name, taken in found.items():
            size = "x".join(map(str, shape))
            print(f"{size:>12}  {name:14}{taken:8.1f}{errors[name]:8.3f}", flush=True)


# [product]
def product(rows: int = 4096, hidden: int = 4096, out: int = 4096) -> None:
    """Multiply by a weight, in bf16 and in FP8 with a scale for each row."""
    input, residual = torch.randn(2, rows, hidden, device="cuda", dtype=torch.bfloat16)
    weight = torch.ones(hidden, device="cuda", dtype=torch.bfloat16)
    matrix = torch.randn(out, hidden, device="cuda", dtype=torch.bfloat16)
    values, scales, sums = q.add_rms_norm_fp8(input, residual, weight, EPS)
    matrix_values, matrix_scales = q.quantize_rows(matrix)
    y = F.rms_norm(sums, weight.shape, weight, EPS)

    def in_fp8() -> Tensor:
        return torch._scaled_mm(
            values,
            matrix_values.t(),  # the second matrix must be column-major
            scale_a=scales,
            scale_b=matrix_scales.t(),
            out_dtype=torch.bfloat16,
        )

    exact = y.double() @ matrix.double().t()
    found = medians({"bf16": lambda: y @ matrix.t(), "fp8": in_fp8})
    print(f"a product of {rows}x{hidden} and {hidden}x{out}")
    for name, result in (("bf16", y @ matrix.t()), ("fp8", in_fp8())):
        error = (result.double() - exact).norm() / exact.norm()
        print(f"  {name:6}{found[name]:8.1f} us, relative error {error:.4f}")


# [/product]


# [groups]
def product_of_groups(rows: int = 4096, hidden: int = 4224, out: int = 4096) -> None:
    """A scale for 128 columns of a row, and for 128 x 128 elements of the weight."""
    input, residual = torch.randn(2, rows, hidden, device="cuda", dtype=torch.bfloat16)
    weight = torch.ones(hidden, device="cuda", dtype=torch.bfloat16)
    matrix = torch.randn(out, hidden, device="cuda", dtype=torch.bfloat16)
    values, scales, sums = q.add_rms_norm_fp8(input, residual, weight, EPS, 128)
    blocks = matrix.float().unflatten(0, (-1, 128)).unflatten(2, (-1, 128))
    block_scales = blocks.abs().amax((1, 3)) / q.LARGEST
    quantized = (blocks / block_scales[:, None, :, None]).to(q.FP8).reshape(out, hidden)
    # cuBLAS reads whole groups of four scales along K: 33 of them need room for 36.
    count = block_scales.shape[1]
    padded = block_scales.new_zeros(out // 128, -(-count // 4) * 4)
    padded[:, :count] = block_scales
    recipe = torch.nn.functional.ScalingType
    result = torch.nn.functional.scaled_mm(
        values,
        quantized.t(),
        scale_a=scales,
        scale_recipe_a=recipe.BlockWise1x128,
        scale_b=padded.t(),
        scale_recipe_b=recipe.BlockWise128x128,
        output_dtype=torch.bfloat16,
    )
    y = F.rms_norm(sums.double(), weight.shape, weight.double(), EPS)
    exact = y @ matrix.double().t()
    error = (result.double() - exact).norm() / exact.norm()
    print(f"scales of A {[*scales.shape]}, strides {scales.stride()}")
    print(f"  groups of 128, relative error {error:.4f}")
    try:
        torch.nn.functional.scaled_mm(
            values,
            quantized.t(),
            scale_a=scales.contiguous(),
            scale_recipe_a=recipe.BlockWise1x128,
            scale_b=padded.t(),
            scale_recipe_b=recipe.BlockWise128x128,
            output_dtype=torch.bfloat16,
        )
        print("  row-major scales: no error")
    except (RuntimeError, ValueError) as error:
        print("  row-major scales:", str(error).splitlines()[0][:90])


# [/groups]


if __name__ == "__main__":
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    casts()
    times()
    product()
    product_of_groups()

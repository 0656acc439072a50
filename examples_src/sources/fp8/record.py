"""The operator of quantize.py on a GPU: casts, errors, speed, and a product of FP8."""

from functools import partial

import quantize as q
import speed
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

import opbook

EPS = 1e-6
SHAPES = [(64, 4096), (2048, 4096), (16384, 4096), (8192, 8192)]
ROUNDS = 41


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
    """The library's operator, which writes y, and a kernel that reads it again."""
    y, sums = opbook.add_rms_norm(input, residual, weight, EPS)
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
        found = speed.medians(calls, ROUNDS)
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
    found = speed.medians({"bf16": lambda: y @ matrix.t(), "fp8": in_fp8}, ROUNDS)
    print(f"a product of {rows}x{hidden} and {hidden}x{out}")
    for name, result in (("bf16", y @ matrix.t()), ("fp8", in_fp8())):
        error = (result.double() - exact).norm() / exact.norm()
        print(f"  {name:6}{found[name]:8.1f} us, relative error {error:.4f}")


# [/product]


if __name__ == "__main__":
    print(speed.versions())
    casts()
    times()
    product()

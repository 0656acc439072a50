"""add_rms_norm followed by quantization to FP8, in one Triton kernel and in two."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op

FP8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FP8).max
# A row of zeros would get the scale 0, and 0 / 0 is NaN.
SMALLEST_PEAK = 1e-12
CONSTANTS = {
    "LARGEST": LARGEST,
    "SMALLEST_PEAK": SMALLEST_PEAK,
    "ROUND_FIRST": triton.knobs.runtime.interpret,
}


# [quantize]
@triton.jit
def quantize(
    y,
    LARGEST: tl.constexpr,
    SMALLEST_PEAK: tl.constexpr,
    ROUND_FIRST: tl.constexpr,
):
    """Values and scales of rows: values * scale is y again, but for rounding."""
    peak = tl.reduce(tl.abs(y), 1, larger, keep_dims=True)
    scale = larger(peak, SMALLEST_PEAK) / LARGEST
    scaled = tl.clamp(y / scale, -LARGEST, LARGEST, propagate_nan=tl.PropagateNan.ALL)
    if ROUND_FIRST:
        scaled = round_to_fp8(scaled)
    return scaled.to(tl.float8e4nv), scale


@triton.jit
def larger(a, b):
    """The larger of two, or NaN if one is NaN: `tl.max` would ignore it."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def round_to_fp8(x):
    """Round in fp32 to what e4m3 has: the interpreter's cast loses carries."""
    product = x * (2.0**20 + 1)  # Veltkamp: 4 of fp32's 24 bits are left
    four_bits = product - (product - x)
    subnormal = (x + 1.5 * 2.0**14) - 1.5 * 2.0**14  # multiples of 2^-9
    return tl.where(tl.abs(x) < 2.0**-6, subnormal, four_bits)


# [/quantize]


# [fused]
@triton.jit
def add_rms_norm_fp8_kernel(
    input, residual, weight, values, scales, sums, hidden, scale_stride, eps,
    LARGEST: tl.constexpr, SMALLEST_PEAK: tl.constexpr, ROUND_FIRST: tl.constexpr,
    GROUPS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """One row: the sum, its norm in registers, and the norm's FP8 values and scales."""
    row = tl.program_id(0).to(tl.int64)
    group = tl.arange(0, GROUPS)[:, None]
    column = group * GROUP + tl.arange(0, GROUP)[None, :]
    inside = column < hidden
    place = row * hidden + column
    x = tl.load(input + place, mask=inside, other=0.0).to(tl.float32)
    r = tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    rounded = (x + r).to(sums.dtype.element_ty)  # as eager rounds it
    tl.store(sums + place, rounded, mask=inside)
    s = rounded.to(tl.float32)
    mean = tl.sum(tl.sum(s * s, axis=1), axis=0) / hidden
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    y = s * tl.rsqrt(mean + eps) * w
    value, scale = quantize(y, LARGEST, SMALLEST_PEAK, ROUND_FIRST)
    tl.store(values + place, value, mask=inside)
    count = tl.cdiv(hidden, GROUP)
    tl.store(scales + row + group * scale_stride, scale, mask=group < count)


# [/fused]


# [operator]
@custom_op("fp8::add_rms_norm", mutates_args=())
def add_rms_norm_fp8(
    input: Tensor, residual: Tensor, weight: Tensor, eps: float, group: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Add, normalize and quantize; return FP8 values, fp32 scales, and the sum.

    Args:
        input: Shape ``[rows, hidden]``, bf16, fp16 or fp32.
        residual: Like ``input``.
        weight: Shape ``[hidden]``.
        eps: Added to the mean square.
        group: Neighbours in a row that share a scale, a power of two; 0 for the row.
    """
    _check(input, residual, weight, group)
    input, residual = input.contiguous(), residual.contiguous()
    values, scales, sums = _outputs(input, group)
    rows, hidden = input.shape
    width = group or triton.next_power_of_2(hidden)
    groups = triton.next_power_of_2(triton.cdiv(hidden, width))
    if rows > 0:
        with torch.cuda.device_of(input):  # or Triton launches on the current GPU
            add_rms_norm_fp8_kernel[(rows,)](
                input, residual, weight.contiguous(), values, scales, sums, hidden,
                scales.stride(1), eps, GROUPS=groups, GROUP=width, **CONSTANTS,
                num_warps=max(1, min(16, width * groups // 512)),
            )  # fmt: skip
    return values, scales, sums


@add_rms_norm_fp8.register_fake
def _(input, residual, weight, eps, group=0):
    _check(input, residual, weight, group)
    return _outputs(input, group)


def _outputs(input: Tensor, group: int) -> tuple[Tensor, Tensor, Tensor]:
    """What both kernels allocate: shapes, dtypes and strides are written down once."""
    rows, hidden = input.shape
    count = -(-hidden // group) if group else 1
    # One column of scales after another, strides (1, rows): the product asks for it.
    scales = input.new_empty((count, rows), dtype=torch.float32).t()
    return (
        input.new_empty((rows, hidden), dtype=FP8),
        scales,
        input.new_empty((rows, hidden)),
    )


# [/operator]


def _check(input: Tensor, residual: Tensor, weight: Tensor, group: int) -> None:
    op = "fp8::add_rms_norm"
    torch._check(
        input.dim() == 2 and residual.dim() == 2,
        lambda: (
            f"{op}: expected input and residual of one shape [rows, hidden], but got "
            f"{list(input.shape)} and {list(residual.shape)}"
        ),
    )
    for dim in range(2):  # each by itself: a size may depend on data
        torch._check(
            input.shape[dim] == residual.shape[dim],
            lambda: (
                f"{op}: expected input and residual of one shape [rows, hidden], but "
                f"got {list(input.shape)} and {list(residual.shape)}"
            ),
        )
    torch._check(
        input.dtype == residual.dtype,
        lambda: (
            f"{op}: expected input and residual of one dtype, but got "
            f"{input.dtype} and {residual.dtype}"
        ),
    )
    torch._check(
        list(weight.shape) == [input.shape[-1]],
        lambda: (
            f"{op}: expected weight of shape [{input.shape[-1]}], "
            f"but got {list(weight.shape)}"
        ),
    )
    torch._check(
        group >= 0 and group & (group - 1) == 0,
        lambda: f"{op}: group must be 0 or a power of two, but is {group}",
    )


@triton.jit
def quantize_kernel(
    input, values, scales, hidden,
    LARGEST: tl.constexpr, SMALLEST_PEAK: tl.constexpr, ROUND_FIRST: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Quantize one row that another kernel wrote."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)[None, :]
    inside = column < hidden
    y = tl.load(input + row * hidden + column, mask=inside, other=0.0).to(tl.float32)
    value, scale = quantize(y, LARGEST, SMALLEST_PEAK, ROUND_FIRST)
    tl.store(values + row * hidden + column, value, mask=inside)
    tl.store(scales + row + tl.arange(0, 1)[:, None], scale)


@custom_op("fp8::quantize_rows", mutates_args=())
def quantize_rows(input: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize each row of a contiguous matrix with a scale of its own."""
    rows, hidden = input.shape
    values, scales, _ = _outputs(input, 0)
    block = triton.next_power_of_2(hidden)
    if rows > 0:
        with torch.cuda.device_of(input):
            quantize_kernel[(rows,)](
                input, values, scales, hidden, BLOCK=block, **CONSTANTS,
                num_warps=max(1, min(16, block // 512)),
            )  # fmt: skip
    return values, scales


@quantize_rows.register_fake
def _(input):
    return _outputs(input, 0)[:2]


@triton.jit
def add_rms_norm_kernel(
    input, residual, weight, output, sums, hidden, eps, BLOCK: tl.constexpr
):
    """One row: the sum, and its norm in the input's dtype."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < hidden
    place = row * hidden + column
    x = tl.load(input + place, mask=inside, other=0.0).to(tl.float32)
    r = tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    rounded = (x + r).to(sums.dtype.element_ty)
    tl.store(sums + place, rounded, mask=inside)
    s = rounded.to(tl.float32)
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    y = s * tl.rsqrt(tl.sum(s * s) / hidden + eps) * w
    tl.store(output + place, y, mask=inside)


@custom_op("fp8::add_rms_norm_unquantized", mutates_args=())
def add_rms_norm(
    input: Tensor, residual: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Add and normalize contiguous matrices, for the quantization by another kernel."""
    output, sums = torch.empty_like(input), torch.empty_like(input)
    rows, hidden = input.shape
    block = triton.next_power_of_2(hidden)
    if rows > 0:
        with torch.cuda.device_of(input):
            add_rms_norm_kernel[(rows,)](
                input, residual, weight, output, sums, hidden, eps, BLOCK=block,
                num_warps=max(1, min(16, block // 512)),
            )  # fmt: skip
    return output, sums


# [reference]
def eager(input, residual, weight, eps, group=0):
    """The same from PyTorch's operators, as one would write it."""
    sums = input + residual
    y = torch.nn.functional.rms_norm(sums.float(), weight.shape, weight.float(), eps)
    width = group or y.shape[1]
    groups = y.unflatten(1, (-1, width))
    scales = groups.abs().amax(-1).clamp(min=SMALLEST_PEAK) / LARGEST
    scaled = (groups / scales[..., None]).clamp(-LARGEST, LARGEST).flatten(1)
    return scaled.to(FP8), scales, sums


# [/reference]


# [bound]
def worst(values: Tensor, scales: Tensor, exact: Tensor) -> float:
    """The largest error as a share of what rounding to FP8 allows; 1 is the limit.

    Three bits after the leading one: half a unit in the last place is 2^-4 of the
    value. Below 2^-6, the smallest normal number, it is 2^-10, whatever the value.
    """
    steps = scales.double().repeat_interleave(exact.shape[1] // scales.shape[1], 1)
    error = (values.double() * steps - exact).abs()
    allowed = torch.maximum(2**-4 * exact.abs(), 2**-10 * steps)
    return (error / allowed).max().item()


# [/bound]

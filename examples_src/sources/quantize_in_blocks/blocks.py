"""Quantization of rows to MXFP8 and NVFP4, for any GPU and Triton's interpreter."""

import os

import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import triton
import triton.language as tl

E4M3_LARGEST, E2M1_LARGEST = 448.0, 6.0


# [encode]
@triton.jit
def encode(value, MANTISSA: tl.constexpr, LOWEST: tl.constexpr, LARGEST: tl.constexpr):
    """Round a number of at least 0 to the nearest code: half to even, LARGEST at most.

    LOWEST is the exponent of the smallest normal number.
    """
    value = tl.minimum(value, LARGEST)
    exponent = (value.to(tl.int32, bitcast=True) >> 23) - 127
    exponent = tl.maximum(exponent, LOWEST)
    steps = value * power_of_two(MANTISSA - exponent)
    magic = 12582912.0  # 1.5 * 2**23: fp32 numbers of this size have no fraction
    count = ((steps + magic) - magic).to(tl.int32)
    return ((exponent - LOWEST + 1) << MANTISSA) + count - (1 << MANTISSA)


@triton.jit
def power_of_two(exponent):
    """2**exponent, for the exponents of normal fp32 numbers."""
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


# [/encode]


# [place]
@triton.jit
def place_of_scale(row, block, tiles):
    """Where scaled_mm reads the scale of a block: tiles of 128 rows and 4 blocks."""
    tile = (row // 128) * tiles + block // 4
    return tile.to(tl.int64) * 512 + row % 32 * 16 + row % 128 // 32 * 4 + block % 4


# [/place]


# [kernels]
@triton.jit
def mxfp8_kernel(x, values, scales, count, BLOCKS: tl.constexpr):
    """Blocks of 32 neighbours in a row, each with a power of two as its scale."""
    row, block = tl.program_id(0), tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    inside = block < count
    place = row.to(tl.int64) * count * 32 + block[:, None] * 32 + tl.arange(0, 32)
    number = tl.load(x + place, mask=inside[:, None], other=0.0).to(tl.float32)
    bits = number.to(tl.int32, bitcast=True)
    peak = tl.max(bits & 0x7FFFFFFF, axis=1)  # in the order of absolute values
    # 448 is 1.75 * 2**8. A larger mantissa needs the next power of two.
    exponent = (peak >> 23) - 127 - 8 + ((peak & 0x7FFFFF) > 0x600000).to(tl.int32)
    exponent = tl.maximum(exponent, -127)
    is_finite = peak < 0x7F800000
    scale = tl.where(is_finite, exponent + 127, 255)  # 255 is NaN
    tiles = tl.cdiv(count, 4)
    tl.store(
        scales + place_of_scale(row, block, tiles), scale.to(tl.uint8), mask=inside
    )
    size = tl.abs(number) * power_of_two(-exponent)[:, None]
    code = encode(size, 3, -6, 448.0) | ((bits < 0).to(tl.int32) << 7)
    code = tl.where(is_finite[:, None], code, 0x7F)
    tl.store(values + place, code.to(tl.uint8), mask=inside[:, None])


@triton.jit
def nvfp4_kernel(x, outer, values, scales, count, BLOCKS: tl.constexpr):
    """Blocks of 16 neighbours, whose scales are multiplied by one for all."""
    row, block = tl.program_id(0), tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    inside = block < count
    place = row.to(tl.int64) * count * 16 + block[:, None] * 16 + tl.arange(0, 16)
    number = tl.load(x + place, mask=inside[:, None], other=0.0).to(tl.float32)
    shared = tl.load(outer)
    bits = number.to(tl.int32, bitcast=True)
    peak = tl.max(bits & 0x7FFFFFFF, axis=1)
    is_finite = peak < 0x7F800000
    wanted = tl.div_rn(peak.to(tl.float32, bitcast=True), 6.0 * shared)
    scale = encode(tl.where(is_finite, wanted, 0.0), 3, -6, 448.0)
    rounded = decode_e4m3(scale) * shared
    tiles = tl.cdiv(count, 4)
    code = tl.where(is_finite, scale, 0x7F).to(tl.uint8)  # 0x7F is NaN
    tl.store(scales + place_of_scale(row, block, tiles), code, mask=inside)
    quotient = tl.div_rn(tl.abs(number), tl.where(rounded > 0, rounded, 1.0)[:, None])
    code = encode(quotient, 1, 0, 6.0) | ((bits < 0).to(tl.int32) << 3)
    code = tl.where((is_finite & (scale > 0))[:, None], code, 0)
    first, second = tl.split(tl.reshape(code, (BLOCKS, 8, 2)))
    pair = (first | (second << 4)).to(tl.uint8)  # the first of two is in the low bits
    place = row.to(tl.int64) * count * 8 + block[:, None] * 8 + tl.arange(0, 8)
    tl.store(values + place, pair, mask=inside[:, None])


@triton.jit
def decode_e4m3(code):
    """The number of a code of e4m3 whose sign bit is 0."""
    exponent = tl.maximum(code >> 3, 1)
    mantissa = code - ((exponent - 1) << 3)  # with its leading one, if it has one
    return mantissa.to(tl.float32) * power_of_two(exponent - 7 - 3)


# [/kernels]


# [operators]
def _outputs(x: Tensor, size: int, packed: int) -> tuple[Tensor, Tensor]:
    """Bytes for the values, and for the scales in whole tiles."""
    rows, columns = x.shape
    values = x.new_empty(rows, columns // packed, dtype=torch.uint8)
    tiles = -(-rows // 128) * -(-(columns // size) // 4)
    return values, x.new_zeros(512 * tiles, dtype=torch.uint8)


def _check(name: str, x: Tensor, size: int) -> None:
    if x.dim() != 2 or x.shape[1] % size != 0:
        wanted = f"a matrix with a multiple of {size} columns"
        raise ValueError(f"{name}: expected x to be {wanted}, but got {[*x.shape]}")
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise TypeError(f"{name}: expected x in fp32, bf16 or fp16, but got {x.dtype}")


@torch.library.custom_op("blocks::mxfp8", mutates_args=())
def mxfp8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize to e4m3 with an e8m0 scale for 32 columns.

    Args:
        x: A matrix in fp32, bf16 or fp16, with a multiple of 32 columns.

    Returns:
        Bytes: the values, and the scales in the order that scaled_mm takes.
    """
    _check("mxfp8", x, 32)
    x = x.contiguous()
    values, scales = _outputs(x, 32, 1)
    count = x.shape[1] // 32
    with torch.cuda.device_of(x):
        if x.numel() > 0:
            mxfp8_kernel[x.shape[0], triton.cdiv(count, 32)](
                x, values, scales, count, 32
            )
    return values, scales


@torch.library.custom_op("blocks::nvfp4", mutates_args=())
def nvfp4(x: Tensor, outer: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize to e2m1, two in a byte, with an e4m3 scale for 16 columns.

    Args:
        x: A matrix in fp32, bf16 or fp16, with a multiple of 16 columns.
        outer: One number in fp32 by which all scales are multiplied: `outer_scale(x)`.

    Returns:
        Bytes: the values, and the scales in the order that scaled_mm takes.
    """
    _check("nvfp4", x, 16)
    if outer.dtype != torch.float32 or outer.numel() != 1 or outer.device != x.device:
        raise ValueError("nvfp4: expected outer to be one fp32 number on x's device")
    x = x.contiguous()
    values, scales = _outputs(x, 16, 2)
    count = x.shape[1] // 16
    with torch.cuda.device_of(x):
        if x.numel() > 0:
            grid = x.shape[0], triton.cdiv(count, 32)
            nvfp4_kernel[grid](x, outer, values, scales, count, 32)
    return values, scales


mxfp8.register_fake(lambda x: _outputs(x, 32, 1))
nvfp4.register_fake(lambda x, outer: _outputs(x, 16, 2))


def outer_scale(x: Tensor) -> Tensor:
    """Let the largest scale of a block be 448, the largest number of e4m3."""
    peak = x.abs().amax().float()
    return torch.where(peak > 0, peak / (E2M1_LARGEST * E4M3_LARGEST), 1.0)


# [/operators]


# [decode]
def scales_of(scales: Tensor, rows: int, count: int) -> Tensor:
    """Read scales out of scaled_mm's order, as a matrix [rows, count]."""
    row = torch.arange(rows, device=scales.device)[:, None]
    block = torch.arange(count, device=scales.device)
    tile = row // 128 * -(-count // 4) + block // 4
    return scales[tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + block % 4]


def from_mxfp8(values: Tensor, scales: Tensor) -> Tensor:
    """Return the fp32 numbers that the bytes mean."""
    numbers = values.view(torch.float8_e4m3fn).float()
    scales = scales_of(scales, len(values), values.shape[1] // 32)
    scales = scales.view(torch.float8_e8m0fnu).float()
    return numbers * scales.repeat_interleave(32, 1)


def from_nvfp4(values: Tensor, scales: Tensor, outer: Tensor) -> Tensor:
    """Return the fp32 numbers that the bytes mean."""
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device=values.device)
    codes = torch.stack((values & 15, values >> 4), -1).flatten(1).long()
    numbers = table[codes & 7] * torch.where(codes > 7, -1.0, 1.0)
    scales = scales_of(scales, len(values), values.shape[1] // 8)
    scales = scales.view(torch.float8_e4m3fn).float() * outer
    return numbers * scales.repeat_interleave(16, 1)


# [/decode]

"""The operators of blocks.py on a GPU: bits, speed, and products."""

import blocks
import clock
import torch
import torch.nn.functional as F
from torch import Tensor

RECIPE, SWIZZLE = F.ScalingType, F.SwizzleType
ROUNDS = 41


# [products]
def mxfp8_product(a: Tensor, b: Tensor) -> Tensor:
    """Quantize both matrices, and multiply a by b, transposed."""
    (a, scale_a), (b, scale_b) = blocks.mxfp8(a), blocks.mxfp8(b)
    return F.scaled_mm(
        a.view(torch.float8_e4m3fn),
        b.view(torch.float8_e4m3fn).t(),
        scale_a.view(torch.float8_e8m0fnu),
        RECIPE.BlockWise1x32,
        scale_b.view(torch.float8_e8m0fnu),
        RECIPE.BlockWise1x32,
        swizzle_a=SWIZZLE.SWIZZLE_32_4_4,
        swizzle_b=SWIZZLE.SWIZZLE_32_4_4,
    )


def nvfp4_product(a: Tensor, b: Tensor) -> Tensor:
    """Quantize both matrices, and multiply a by b, transposed."""
    outer_a, outer_b = blocks.outer_scale(a), blocks.outer_scale(b)
    (a, scale_a), (b, scale_b) = blocks.nvfp4(a, outer_a), blocks.nvfp4(b, outer_b)
    recipe = [RECIPE.BlockWise1x16, RECIPE.TensorWise]
    swizzle = [SWIZZLE.SWIZZLE_32_4_4, SWIZZLE.NO_SWIZZLE]
    return F.scaled_mm(
        a.view(torch.float4_e2m1fn_x2),
        b.view(torch.float4_e2m1fn_x2).t(),
        [scale_a.view(torch.float8_e4m3fn), outer_a],
        recipe,
        [scale_b.view(torch.float8_e4m3fn), outer_b],
        recipe,
        swizzle_a=swizzle,
        swizzle_b=swizzle,
    )


# [/products]


def products() -> None:
    """Multiply, or print why this GPU does not."""
    a, b = torch.randn(2, 4096, 4096, device="cuda", dtype=torch.bfloat16)
    exact = a.double() @ b.double().t()
    for product in (mxfp8_product, nvfp4_product):
        try:
            error = (product(a, b).double() - exact).norm() / exact.norm()
            print(f"  {product.__name__}: relative error {error:.4f}")
        except (RuntimeError, ValueError, NotImplementedError) as error:
            print(f"  {product.__name__}: {str(error).splitlines()[0]}")


def plain(x: Tensor) -> tuple[Tensor, Tensor]:
    """MXFP8 in PyTorch's operators, with the scales as a matrix of fp32 numbers."""
    grouped = x.float().unflatten(1, (-1, 32))
    peak = grouped.abs().amax(-1, keepdim=True)
    scales = torch.exp2((peak / blocks.E4M3_LARGEST).log2().ceil())
    return (grouped / scales).flatten(1).to(torch.float8_e4m3fn), scales.squeeze(-1)


def bits() -> None:
    """Compare values and scales with those of PyTorch's operators."""
    x = (
        torch.randn(1000, 4096, device="cuda")
        * torch.randn(1000, 1, device="cuda").exp()
    )
    values, scales = blocks.mxfp8(x)
    expected, expected_scales = plain(x)
    scales = blocks.scales_of(scales, 1000, 128).view(torch.float8_e8m0fnu).float()
    print("  values:", torch.equal(values, expected.view(torch.uint8)))
    print("  scales:", torch.equal(scales, expected_scales))


def speed() -> None:
    """Print what quantizing costs beside a copy."""
    for shape in ((2048, 4096), (16384, 4096)):
        x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        outer = blocks.outer_scale(x)
        compiled = torch.compile(plain, dynamic=False)
        found = clock.medians(
            {
                "copy": x.clone,
                "mxfp8": lambda x=x: blocks.mxfp8(x),
                "nvfp4": lambda x=x, outer=outer: blocks.nvfp4(x, outer),
                "torch.compile of plain": lambda x=x, to=compiled: to(x),
            },
            ROUNDS,
        )
        for name, taken in found.items():
            print(f"  {shape!s:14}{name:24}{taken:8.1f}")


if __name__ == "__main__":
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    print("the same bits as PyTorch's operators")
    bits()
    print(f"bf16, microseconds, median of {ROUNDS}, cold cache")
    speed()
    print("products of 4096x4096")
    products()

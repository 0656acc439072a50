"""Count the multiply-adds in a kernel that is compiled for an NVIDIA chip."""

import os

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def multiply_and_add(a, b, output, BLOCK: tl.constexpr):
    """Compute a * b + a."""
    place = tl.arange(0, BLOCK)
    x = tl.load(a + place)
    tl.store(output + place, x * tl.load(b + place) + x)


types = dict.fromkeys(("a", "b", "output"), "*fp32") | {"BLOCK": "constexpr"}
source = ASTSource(multiply_and_add, types, {"BLOCK": 128})
code = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
setting = os.environ["TRITON_DEFAULT_FP_FUSION"]
print(f"TRITON_DEFAULT_FP_FUSION={setting}:", code.count("fma.rn.f32"), "multiply-adds")

"""A Triton kernel in float8_e4m3fn, compiled for an A100, which has no such type."""

import os

os.environ["TRITON_INTERPRET"] = "0"  # before triton is imported
os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def round_kernel(input, output):
    """Round one number."""
    tl.store(output, tl.load(input).to(tl.float8e4nv))


source = ASTSource(round_kernel, {"input": "*fp32", "output": "*fp8e4nv"})
triton.compile(source, target=GPUTarget("cuda", 80, 32))

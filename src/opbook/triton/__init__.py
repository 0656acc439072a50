"""Operators whose kernels are written in Triton.

Importing this package imports Triton, which decides at that moment whether it compiles
for the GPU at hand or interprets on the CPU (``TRITON_INTERPRET=1``).
"""

from opbook.triton.attention import attention
from opbook.triton.dropout import dropout
from opbook.triton.linear import linear_gelu, matmul
from opbook.triton.rms_norm import rms_norm
from opbook.triton.scale import scale, scale_
from opbook.triton.softmax import softmax

__all__ = [
    "attention",
    "dropout",
    "linear_gelu",
    "matmul",
    "rms_norm",
    "scale",
    "scale_",
    "softmax",
]

"""Compute the mean square of fp16 numbers in fp32.

`rms_norm` divides each row by the root of its mean square. The largest fp16 number is
65504, and a square is soon above it. Mend `rms_norm`; the result stays in x's dtype.
"""

import torch


# [gap]
def rms_norm(x, eps):
    mean = x.square().mean(-1, keepdim=True)
    return x * torch.rsqrt(mean + eps)


# [/gap]

"""Compute softmax without an overflow.

exp(89) is larger than any fp32 number. Eager PyTorch's softmax takes such inputs, since
a constant that is subtracted from a row does not change the result. Mend `softmax`.
"""

import torch


# [gap]
def softmax(x):
    powers = torch.exp(x)
    return powers / powers.sum(-1, keepdim=True)


# [/gap]

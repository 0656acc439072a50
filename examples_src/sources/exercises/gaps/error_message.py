"""Refuse an argument with an error that helps.

`add_bias(x, bias)` adds a number of its own to each column of x. PyTorch would also add
a bias of one element, or of two dimensions, without a word. Write `check`: it raises a
ValueError unless bias has one dimension and as many elements as x has columns. The
message names the operator, the argument, the shape of bias and the columns of x.
"""

import torch


# [gap]
def check(x, bias):
    pass


# [/gap]


@torch.library.custom_op("error_message::add_bias", mutates_args=())
def add_bias(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    check(x, bias)
    return x + bias

"""Keep a number on the device, and the function in one graph.

`limit_to_one` divides by the largest magnitude if that is above 1. It asks Python for
the number, which ends the graph of torch.compile and makes a GPU wait. Write it with
tensors only.
"""

import torch  # noqa: F401  the answer may need it


# [gap]
def limit_to_one(x):
    largest = x.abs().max().item()
    if largest > 1:
        return x / largest
    return x


# [/gap]

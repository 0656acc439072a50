"""Call the kernel that an override has replaced.

This override of `abs` notes the shape of each input, and computes as before. It calls
`torch.abs` for that, which the dispatcher sends to the override. Mend `noted`: besides
x, it gets the key set of the call, the first argument of a kernel's `call_boxed`.
"""

import torch

shapes = []


# [gap]
def noted(keyset, x):
    shapes.append(x.shape)
    return torch.abs(x)


# [/gap]

library = torch.library.Library("aten", "IMPL")
library.impl("abs", noted, "CPU", with_keyset=True, allow_override=True)

"""Call the kernel that an override has replaced.

`abs` shall note the shape of each input, and compute as before. The override calls
`torch.abs`, which the dispatcher sends to the override. Mend `noted`: besides x, it
gets the key set of the call, which a kernel's `call_boxed` takes as its first argument.
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

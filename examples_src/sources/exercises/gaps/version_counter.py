"""Tell autograd that the memory of a tensor has changed.

`double_` changes x through NumPy, which PyTorch does not see. When autograd has kept x
for a gradient, that gradient is computed from the new numbers, without an error.
"""

import torch

library = torch.library.Library("version_counter", "FRAGMENT")
library.define("double_(Tensor(a!) x) -> ()")


# [gap]
def double_(x):
    memory = x.detach().numpy()
    memory *= 2


# [/gap]

library.impl("double_", double_, "CPU")

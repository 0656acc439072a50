"""Return a tensor of the operator's own.

`scale(x, 1.0)` has nothing to do and returns x itself. The schema promises a new
tensor, and who changes the result in place changes x as well. Mend the kernel.
"""

import torch

library = torch.library.Library("returns_its_input", "FRAGMENT")
library.define("scale(Tensor x, float factor) -> Tensor")


# [gap]
def scale(x, factor):
    if factor == 1:
        return x
    return x * factor


# [/gap]

library.impl("scale", scale, "CompositeExplicitAutograd")
library.impl("scale", lambda x, factor: torch.empty_like(x), "Meta")

"""Let autograd use the formula that you register.

`round` has the derivative 0 almost everywhere. `round_through` rounds as well, but lets
the gradient through unchanged, and registers a formula that says so. The gradient is
still 0. Find the reason in the registration.
"""

import torch

library = torch.library.Library("lost_gradient", "FRAGMENT")
library.define("round_through(Tensor x) -> Tensor")


def round_through(x):
    return x.round()


def backward(ctx, grad):
    return grad


# [gap]
library.impl("round_through", round_through, "CompositeImplicitAutograd")
# [/gap]

torch.library.register_autograd("lost_gradient::round_through", backward, lib=library)

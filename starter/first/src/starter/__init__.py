"""One operator for PyTorch, in C++."""

import torch  # first: it loads the libraries that _C is linked to

from starter import _C  # importing _C registers its operators

swiglu = torch.ops.starter.swiglu

__all__ = ["swiglu"]

"""Operators for PyTorch, in C++, CUDA and HIP."""

import torch  # first: it loads the libraries that _C is linked to

from starter import _C  # importing _C registers its operators
from starter.swiglu import swiglu

__all__ = ["swiglu"]

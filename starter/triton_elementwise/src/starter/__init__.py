"""Operators for PyTorch, in Triton."""

from starter.swiglu import swiglu

__all__ = ["swiglu"]

"""Tools for PyTorch operators of your own; ``opbook_tools.check`` needs PyTorch."""

from opbook_tools.sample import Sample, samples

__all__ = ["Sample", "samples"]

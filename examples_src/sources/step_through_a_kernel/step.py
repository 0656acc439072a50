"""Call an operator of a debug build: what the debugger steps through."""

import torch

torch.ops.load_library("build/scale_debug.so")
print(torch.ops.scale_stable.scale(torch.tensor([1.0, 2.0, 3.0]), 10.0))

"""Call an operator of a debug build: what the debugger steps through."""

import torch

torch.ops.load_library("build/square_debug.so")
print(torch.ops.mechanism_stable.bare(torch.tensor([1.0, 2.0, 3.0])))

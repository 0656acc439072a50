"""Load libraries of operators and a compiled model, and run the model on ones."""

import sys

import torch

model, *libraries = sys.argv[1:]
for library in libraries:
    torch.ops.load_library(library)
print(torch._inductor.aoti_load_package(model)(torch.ones(1, 8)))

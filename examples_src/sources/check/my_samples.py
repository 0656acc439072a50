"""The arguments of one call, or of several."""

import torch

SAMPLES = [(torch.randn(4, 16), 2.0)]

"""KiB that autograd keeps for backward: operators of opbook.triton, and eager."""

import os
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks

device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

from opbook import triton as ops


def kept(function: Callable) -> float:
    """KiB that autograd keeps for backward, each memory once."""
    memories = {}

    def pack(tensor):
        memory = tensor.untyped_storage()
        memories[memory.data_ptr()] = memory.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        function()
    return sum(memories.values()) / 1024


x = torch.randn(16, 1024, device=device, requires_grad=True)
w = torch.randn(1024, device=device, requires_grad=True)
pairs = {
    "scale": (lambda: ops.scale(x, 2.0), lambda: x * 2.0),
    "softmax": (lambda: ops.softmax(x), lambda: F.softmax(x, -1)),
    "dropout": (lambda: ops.dropout(x, 0.5, 7), lambda: F.dropout(x, 0.5)),
    "rms_norm": (lambda: ops.rms_norm(x, w), lambda: F.rms_norm(x, (1024,), w, 1e-6)),
}
print(f"on {device}; the input has {x.nbytes / 1024:.0f} KiB")
for name, (ours, eager) in pairs.items():
    print(f"{name:9} ours {kept(ours):6.1f}   eager {kept(eager):6.1f}")

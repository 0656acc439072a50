"""What importing the module of pybind11 did, and what PyTorch has to know besides."""

from importlib.util import find_spec

import torch

# The compiled file, such as migrated_cpu.cpython-311-x86_64-linux-gnu.so, is found
# where `import migrated_cpu` would find it.
torch.ops.load_library(find_spec("migrated_cpu").origin)
scan = torch.ops.migrated.scan.default


@torch.library.register_fake("migrated::scan")
def _(x, decay=None):
    return x.new_empty(x.shape)


def _save(ctx, inputs, output):
    _, decay = inputs
    ctx.save_for_backward(decay, output)


def _backward(ctx, grad):
    decay, y = ctx.saved_tensors
    # `flip` copies: the gradient of `sum()` is expanded, and has no rows in memory.
    grad_x = scan(grad.flip(1), decay).flip(1)
    grad_decay = None
    # A default that the caller left out has no entry in `needs_input_grad`.
    if decay is not None and ctx.needs_input_grad[1]:
        grad_decay = (grad_x[:, 1:] * y[:, :-1]).sum(1, dtype=decay.dtype)
    return grad_x, grad_decay


torch.library.register_autograd("migrated::scan", _backward, setup_context=_save)

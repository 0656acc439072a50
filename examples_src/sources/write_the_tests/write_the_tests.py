"""Expected failures that are executed: ``python -m pytest`` with this file's name."""

import pytest
import torch
import torch.nn.functional as F

import opbook


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_raises_what_eager_raises(shape):
    """The same kind of error, in words that name the operator."""
    input, weight = torch.ones(shape), torch.ones(4)
    with pytest.raises(RuntimeError) as eager:
        F.rms_norm(input, input.shape[-1:], weight)
    with pytest.raises(eager.type, match=r"opbook::rms_norm: .*(weight|input)"):
        opbook.rms_norm(input, weight)


@pytest.mark.xfail(
    strict=True, raises=NotImplementedError, reason="it has no gradient of its own"
)
def test_gradient_of_the_backward_operator():
    """A limitation: differentiate opbook.rms_norm twice instead."""
    input = torch.randn(2, 3, requires_grad=True)
    _, rrms = torch.ops.opbook.rms_norm_forward(input)
    grad = torch.randn(2, 3, requires_grad=True)
    backward = torch.ops.opbook.rms_norm_backward
    grad_input, _ = backward(grad, input, None, rrms, True, False)
    grad_input.sum().backward()

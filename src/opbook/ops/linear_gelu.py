"""Linear and GELU: interface, fake kernels and autograd of ``linear_gelu``."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from opbook.checks import FLOATING, needs_grad
from opbook.forward_mode import register_autograd

DEVICES = ("cpu", "cuda")  # where the operator has a kernel


def linear_gelu(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    approximate: str = "none",
) -> Tensor:
    r"""Apply a linear layer, then GELU.

    .. math:: y = \operatorname{GELU}(x W^\top + b), \quad
       \operatorname{GELU}(z) = z \, \Phi(z) = \tfrac{z}{2}
       \left(1 + \operatorname{erf} \tfrac{z}{\sqrt{2}}\right)

    ``approximate="tanh"`` replaces the error function:

    .. math:: \operatorname{GELU}(z) \approx \tfrac{z}{2} \left(1 + \tanh\left(
       \sqrt{2 / \pi} \, (z + 0.044715 \, z^3)\right)\right)

    On NVIDIA GPUs, the tanh form of fp16 and bf16 without a gradient is one call of
    ``aten::_addmm_activation``, with which cuBLASLt applies GELU to the fp32 sums of
    the product. All other calls take two steps: PyTorch's matrix product, and a kernel
    of this library, which overwrites the product unless backward needs it.

    Arguments that only ``torch.nn.functional.linear`` accepts (a sparse weight, a bias
    that broadcasts) take PyTorch's own path, and so does a call under autocast.

    GELU runs in fp32 for fp16, bf16 and fp32, and in fp64 for fp64. Source: Hendrycks
    and Gimpel, *Gaussian Error Linear Units* (arXiv:1606.08415), section 2.

    Args:
        input: Shape ``[..., in_features]``, any strides; fp16, bf16, fp32 or fp64.
        weight: Shape ``[out_features, in_features]``, any strides, same dtype.
        bias: Shape ``[out_features]``, same dtype. ``None`` adds nothing.
        approximate: ``"none"`` for the error function, ``"tanh"`` for the other form.

    Returns:
        A contiguous tensor of shape ``[..., out_features]`` and ``input``'s dtype. On
        PyTorch's own path, the strides are PyTorch's, and so is autocast's dtype.

    Raises:
        TypeError: ``input``, ``weight`` or ``bias`` is not a tensor, or ``approximate``
            is not a string.
        NotImplementedError: The dtype of ``input`` has no kernel.
        RuntimeError: Shapes, dtypes or devices do not fit together, or ``approximate``
            is another string.

    Note:
        The same call gives the same bits. Those of a row may depend on the other rows,
        because the library behind PyTorch's matrix product chooses by their number.

    Example:
        >>> opbook.linear_gelu(torch.tensor([1.0, 2.0]), torch.eye(2))
        tensor([0.8413, 1.9545])
    """
    _check_kinds(input, weight, bias, approximate)
    if _takes_pytorchs_path(input, weight, bias):
        return F.gelu(F.linear(input, weight, bias), approximate=approximate)
    tanh_form = _is_tanh_form(approximate)
    if needs_grad(input, weight, bias):
        return _call_for_backward(input, weight, bias, tanh_form)[0]
    return _call_linear_gelu(input, weight, bias, tanh_form)


def _check_kinds(input, weight, bias, approximate) -> None:
    """Raise the kind of error eager raises, which C++ behind a stable ABI cannot."""
    for name, tensor in (("input", input), ("weight", weight), ("bias", bias)):
        if isinstance(tensor, Tensor) or (tensor is None and name == "bias"):
            continue
        raise TypeError(
            f"opbook.linear_gelu: {name} must be a Tensor, "
            f"but got {type(tensor).__name__}"
        )
    if not isinstance(approximate, str):
        raise TypeError(
            "opbook.linear_gelu: approximate must be a str, "
            f"but got {type(approximate).__name__}"
        )
    if input.dtype not in FLOATING:
        raise NotImplementedError(
            "opbook.linear_gelu: input must be fp16, bf16, fp32 or fp64, "
            f"but got {input.dtype}"
        )


def _is_tanh_form(approximate: str) -> bool:
    if approximate not in ("none", "tanh"):
        raise RuntimeError(
            "opbook.linear_gelu: expected approximate to be 'none' or 'tanh', "
            f"but got {approximate!r}"
        )
    return approximate == "tanh"


def _takes_pytorchs_path(input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Tell what ``F.linear`` may accept although the operator does not."""
    device = input.device.type
    if device in DEVICES and torch.is_autocast_enabled(device):
        return True  # it is still on inside a kernel, and would lower the product there
    tensors = [tensor for tensor in (input, weight, bias) if tensor is not None]
    if any(t.layout != torch.strided or t.is_nested for t in tensors):
        return True
    if bias is None or weight.dim() != 2:
        return weight.dim() == 1
    broadcasts = bias.dim() != 1 or bias.shape[0] == 1 != weight.shape[0]
    return broadcasts or (bias.dtype != input.dtype and input.dim() != 2)


@torch.library.register_fake("opbook::linear_gelu")
def _(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    tanh_form: bool = False,
) -> Tensor:
    """Shape, dtype, device and strides of the result, and the real kernel's errors."""
    _check(input, weight, bias)
    return input.new_empty((*input.shape[:-1], weight.shape[0]))


@torch.library.register_fake("opbook::linear_gelu_for_backward")
def _(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    tanh_form: bool = False,
) -> tuple[Tensor, Tensor]:
    """Output and pre-activation are two tensors of one description."""
    _check(input, weight, bias)
    shape = (*input.shape[:-1], weight.shape[0])
    return input.new_empty(shape), input.new_empty(shape)


def _check(input, weight, bias) -> None:
    name = "opbook::linear_gelu"
    torch._check(
        input.dim() >= 1,
        lambda: (
            f"{name}: expected input to have at least 1 dimension, "
            f"but got shape {list(input.shape)}"
        ),
    )
    torch._check(
        weight.dim() == 2 and weight.shape[1] == input.shape[-1],
        lambda: (
            f"{name}: expected weight of shape [out_features, {input.shape[-1]}], "
            f"as input is {list(input.shape)}, but got {list(weight.shape)}"
        ),
    )
    if bias is not None:
        torch._check(
            bias.dim() == 1 and bias.shape[0] == weight.shape[0],
            lambda: (
                f"{name}: expected bias of shape [{weight.shape[0]}], "
                f"as weight is {list(weight.shape)}, but got {list(bias.shape)}"
            ),
        )
    for argument, tensor in (("weight", weight), ("bias", bias)):
        if tensor is None:
            continue
        torch._check(
            tensor.device == input.device,
            lambda argument=argument, tensor=tensor: (
                f"{name}: expected {argument} on "
                f"the device of input ({input.device}), but got {tensor.device}"
            ),
        )
        torch._check(
            tensor.dtype == input.dtype,
            lambda argument=argument, tensor=tensor: (
                f"{name}: expected {argument} of "
                f"input's dtype, {input.dtype}, but got {tensor.dtype}"
            ),
        )


# [backward]
def _save(ctx, inputs, output) -> None:
    """Keep what the gradients asked for are functions of, and nothing else."""
    input, weight, _, ctx.tanh_form = inputs
    _, preactivation = output
    needs_input, needs_weight, *_ = ctx.needs_input_grad
    ctx.save_for_backward(
        input if needs_weight else None,
        weight if needs_input else None,
        preactivation,
    )
    ctx.set_materialize_grads(False)


def _backward(ctx, grad_output, grad_preactivation):
    """Compose differentiable operators, so that second derivatives are right too."""
    input, weight, preactivation = ctx.saved_tensors
    if grad_output is not None:
        grad = _gelu_backward(grad_output, preactivation, ctx.tanh_form)
        # A second backward comes here through the saved pre-activation.
        grad_preactivation = (
            grad if grad_preactivation is None else grad + grad_preactivation
        )
    if grad_preactivation is None:
        return None, None, None, None
    return *_linear_backward(ctx, grad_preactivation, input, weight), None


def _gelu_backward(grad_output, preactivation, tanh_form):
    return torch.ops.aten.gelu_backward(
        grad_output, preactivation, approximate="tanh" if tanh_form else "none"
    )


def _linear_backward(ctx, grad, input, weight):
    """Gradients for input, weight and bias; None for those not needed."""
    needs_input, needs_weight, needs_bias, _ = ctx.needs_input_grad
    rows = _as_matrix(grad)
    return (
        grad @ weight if needs_input else None,
        rows.t() @ _as_matrix(input) if needs_weight else None,
        rows.sum(0) if needs_bias else None,
    )


def _as_matrix(tensor: Tensor) -> Tensor:
    """All rows below each other; gradients in batches know no ``flatten``."""
    return tensor.reshape(math.prod(tensor.shape[:-1]), tensor.shape[-1])


_call_for_backward = register_autograd(
    "opbook::linear_gelu_for_backward", _backward, setup_context=_save
)
# [/backward]


def _save_inputs(ctx, inputs, output) -> None:
    input, weight, bias, ctx.tanh_form = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(input, weight, bias)


def _recompute_and_backward(ctx, grad_output):
    """Serve callers of the operator itself: it returned no pre-activation."""
    if grad_output is None:
        return None, None, None, None
    input, weight, bias = ctx.saved_tensors
    preactivation = F.linear(input, weight, bias)
    grad = _gelu_backward(grad_output, preactivation, ctx.tanh_form)
    return *_linear_backward(ctx, grad, input, weight), None


_call_linear_gelu = register_autograd(
    "opbook::linear_gelu", _recompute_and_backward, setup_context=_save_inputs
)

"""Matrix product with ``tl.dot``, and the same kernel with bias and GELU fused in."""

import math
from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from opbook.forward_mode import register_autograd
from opbook.triton.launch import (
    INTERPRETED,
    check_input,
    check_like,
    device_of,
    refuse_nested,
)

# [configs]
CONFIGS = [
    triton.Config(
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_warps=warps, num_stages=stages
    )
    for m, n, k, warps, stages in (
        (64, 64, 32, 4, 3),
        (128, 64, 32, 4, 4),
        (128, 128, 64, 8, 3),
        (128, 256, 64, 8, 3),
    )
]
# [/configs]


# [kernel]
# The interpreter has no device to time on, so there it gets one config.
@triton.autotune(CONFIGS[:1] if INTERPRETED else CONFIGS, key=["bucket", "N", "K"])
@triton.jit
def linear_kernel(
    a, b, bias, output, M, bucket, N, K,
    a_m, a_k, b_n, b_k,
    HAS_BIAS: tl.constexpr, GELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile of GELU(a @ b^T + bias), with the sums in fp32 registers.

    The tuner reads `bucket`, and nobody else.
    """
    tile = tl.program_id(0).to(tl.int64)  # a grid's second dimension ends at 65535
    tiles = tl.cdiv(M, BLOCK_M)
    m = tile % tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile // tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K).to(tl.int64)
        a_inside = (m[:, None] < M) & (k[None, :] < K)
        b_inside = (n[:, None] < N) & (k[None, :] < K)
        a_tile = tl.load(a + m[:, None] * a_m + k[None, :] * a_k, a_inside, 0.0)
        b_tile = tl.load(b + n[:, None] * b_n + k[None, :] * b_k, b_inside, 0.0)
        # "ieee": fp32 stays fp32, where TF32 would keep ten bits of its fraction.
        total = tl.dot(a_tile, b_tile.T, total, input_precision="ieee")
    if HAS_BIAS:
        total += tl.load(bias + n, n < N, 0.0).to(tl.float32)[None, :]
    if GELU:
        total = 0.5 * total * (1 + tl.erf(total * 0.7071067811865476))
    inside = (m[:, None] < M) & (n[None, :] < N)
    result = total.to(output.dtype.element_ty)
    tl.store(output + m[:, None] * N + n[None, :], result, inside)


# [/kernel]


def _launch(a: Tensor, b: Tensor, bias: Tensor | None, gelu: bool) -> Tensor:
    """Compute ``a @ b.T``: ``a`` is [M, K], ``b`` is [N, K], both of any strides."""
    (rows, depth), columns = a.shape, b.shape[0]
    output = a.new_empty(rows, columns)
    if INTERPRETED and a.dtype == torch.bfloat16:
        a, b = a.float(), b.float()  # the interpreter multiplies bf16 bit patterns
    if output.numel() > 0:
        with device_of(a):
            linear_kernel[tiles_of(rows, columns)](
                a, b, bias, output, rows, bucket_of(rows), columns, depth,
                *a.stride(), *b.stride(), HAS_BIAS=bias is not None, GELU=gelu,
            )  # fmt: skip
    return output


def tiles_of(rows: int, columns: int) -> Callable[[dict], tuple[int]]:
    """The grid of a product, for each config that the tuner tries."""

    def grid(config):
        m, n = config["BLOCK_M"], config["BLOCK_N"]
        return (triton.cdiv(rows, m) * triton.cdiv(columns, n),)

    return grid


def bucket_of(rows: int) -> int:
    """What the tuner knows of the rows: not every batch size is worth a search."""
    return triton.next_power_of_2(rows)


# [matmul]
@torch.library.custom_op("opbook_triton::matmul", mutates_args=())
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Multiply two matrices.

    Args:
        a: Shape ``[m, k]``, any strides; fp16, bf16 or fp32.
        b: Shape ``[k, n]``, any strides, the dtype and device of ``a``.

    Returns:
        A contiguous tensor ``[m, n]`` of that dtype. Sums run in fp32.

    Raises:
        NotImplementedError: Another dtype, a sparse or nested tensor, or forward mode.
        RuntimeError: Shapes, dtypes or devices do not fit together.
    """
    _check_product(a, b)
    return _launch(a, b.t(), None, gelu=False)


def _check_product(a: Tensor, b: Tensor) -> None:
    op = "opbook.triton.matmul"
    for name, value in (("a", a), ("b", b)):
        check_input(op, name, value)
    fits = a.dim() == b.dim() == 2 and a.shape[1] == b.shape[0]
    torch._check(
        fits,
        lambda: (
            f"{op}: expected a [m, k] and b [k, n], "
            f"but got {list(a.shape)} and {list(b.shape)}"
        ),
    )
    check_like(op, "b", b, a, b.shape, a.dtype)


refuse_nested(matmul)


@matmul.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    _check_product(a, b)
    return a.new_empty(a.shape[0], b.shape[1])


def _save_matmul(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _backward_matmul(ctx, grad: Tensor):
    a, b = ctx.saved_tensors
    need_a, need_b = ctx.needs_input_grad
    grad_a = matmul(grad, b.t()) if need_a else None
    return grad_a, matmul(a.t(), grad) if need_b else None


register_autograd("opbook_triton::matmul", _backward_matmul, setup_context=_save_matmul)
# [/matmul]


# [linear_gelu]
@torch.library.custom_op("opbook_triton::linear_gelu", mutates_args=())
def linear_gelu(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Apply a linear layer and the exact GELU, in one kernel.

    Args:
        input: Shape ``[..., in_features]``, any strides; fp16, bf16 or fp32.
        weight: Shape ``[out_features, in_features]``, the dtype of ``input``.
        bias: Shape ``[out_features]``, the dtype of ``input``. ``None`` adds nothing.

    Returns:
        A contiguous tensor ``[..., out_features]``. Sums and GELU run in fp32.

    Raises:
        NotImplementedError: Another dtype, a sparse or nested tensor, or forward mode.
        RuntimeError: Shapes, dtypes or devices do not fit together.
    """
    _check_layer(input, weight, bias)
    bias = None if bias is None else bias.contiguous()
    output = _launch(_as_matrix(input), weight, bias, gelu=True)
    return output.view(*input.shape[:-1], weight.shape[0])


def _as_matrix(input: Tensor) -> Tensor:
    """All rows below each other. ``reshape(-1, 0)`` of an empty tensor is ambiguous."""
    return input.reshape(math.prod(input.shape[:-1]), input.shape[-1])


def _check_layer(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    op = "opbook.triton.linear_gelu"
    for name, value in (("input", input), ("weight", weight)):
        check_input(op, name, value)
    fits = input.dim() >= 1 and weight.dim() == 2 and input.shape[-1] == weight.shape[1]
    torch._check(
        fits,
        lambda: (
            f"{op}: expected input [..., k] and weight [n, k], "
            f"but got {list(input.shape)} and {list(weight.shape)}"
        ),
    )
    check_like(op, "weight", weight, input, weight.shape, input.dtype)
    if bias is not None:
        check_like(op, "bias", bias, input, weight.shape[:1], input.dtype)


refuse_nested(linear_gelu)


@linear_gelu.register_fake
def _(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    _check_layer(input, weight, bias)
    return input.new_empty(*input.shape[:-1], weight.shape[0])


# [/linear_gelu]


# [linear_gelu_autograd]
def _save_linear_gelu(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _backward_linear_gelu(ctx, grad: Tensor):
    """Compute the pre-activation again: the fused kernel never wrote it."""
    with torch.autocast(grad.device.type, enabled=False):  # the forward ignores it too
        return _gradients_of_linear_gelu(ctx, grad)


def _gradients_of_linear_gelu(ctx, grad: Tensor):
    input, weight, bias = ctx.saved_tensors
    z = torch.nn.functional.linear(input, weight, bias)
    grad_z = torch.ops.aten.gelu_backward(grad, z)
    rows = _as_matrix(grad_z)
    need_input, need_weight, need_bias = (*ctx.needs_input_grad, False)[:3]
    return (
        grad_z @ weight if need_input else None,
        rows.t() @ _as_matrix(input) if need_weight else None,
        rows.sum(0) if need_bias else None,
    )


register_autograd(
    "opbook_triton::linear_gelu",
    _backward_linear_gelu,
    setup_context=_save_linear_gelu,
)
# [/linear_gelu_autograd]

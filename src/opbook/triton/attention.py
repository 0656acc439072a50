"""Attention in Triton: the scores of a block of queries never leave the chip."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from opbook.checks import is_number
from opbook.forward_mode import register_autograd
from opbook.triton.launch import (
    INTERPRETED,
    check_input,
    check_like,
    device_of,
    refuse_nested,
)

HEAD_DIMS = (16, 32, 64, 128, 256)  # a block's side is a power of two
LOG2E = tl.constexpr(1.4426950408889634)  # exp(x) = exp2(x * LOG2E)


# [configs]
def set_blocks(args: dict) -> None:
    """Give each descriptor the rows that this config takes at once."""
    for names, rows in (
        (("query", "output", "grad", "grad_query"), args["BLOCK_M"]),
        (("key", "value", "grad_key", "grad_value"), args["BLOCK_N"]),
    ):
        for name in set(names) & set(args):
            args[name].block_shape = [1, 1, rows, args["HEAD_DIM"]]


def configs(*choices: tuple[int, int, int, int]) -> list[triton.Config]:
    """Rows of queries, rows of keys, warps, and stages of the pipeline."""
    return [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n},
            num_warps=warps,
            num_stages=stages,
            pre_hook=set_blocks,
        )
        for m, n, warps, stages in choices
    ]


# The last of each list fits a GPU with less shared memory, or rows of 256.
FORWARD = configs((128, 64, 4, 2), (64, 128, 4, 2), (64, 64, 4, 3), (64, 32, 4, 2))
GRAD_KEY_VALUE = configs((64, 64, 4, 2), (128, 64, 4, 2), (32, 64, 4, 2))
GRAD_QUERY = configs((128, 64, 8, 3), (64, 64, 4, 2), (64, 32, 4, 2))
SMALL = configs((32, 32, 4, 1))


def by_element_size(kernel, choices: list[triton.Config]) -> dict:
    """The kernel with a tuner for half types, and with one config for fp32.

    The tuner does not see a descriptor's dtype, and large blocks of fp32 do not fit.
    The interpreter has no device to time on, so there it gets one config.
    """
    key = ["bucket", "HEAD_DIM", "CAUSAL"]
    small = triton.autotune(SMALL, key=key)(kernel)
    half = small if INTERPRETED else triton.autotune(choices, key=key)(kernel)
    return {2: half, 4: small}


# [/configs]


@triton.jit
def load_rows(tensor, batch, head, row):
    """A block of rows of one head; zeros past the end of the sequence."""
    tile = tensor.load([batch, head, row, 0])
    return tile.reshape(tile.shape[2], tile.shape[3])


@triton.jit
def store_rows(tensor, batch, head, row, tile):
    """Write a block of rows; what is past the end of the sequence is left out."""
    tile = tile.to(tensor.dtype).reshape(1, 1, tile.shape[0], tile.shape[1])
    tensor.store([batch, head, row, 0], tile)


@triton.jit
def is_visible(row, column, kv_len, CAUSAL: tl.constexpr):
    """Whether a query sees a key: row i sees columns 0 to i if causal."""
    visible = column < kv_len
    if CAUSAL:
        visible = visible & (column <= row)
    return visible


# [forward]
@triton.jit
def attend(
    q, key, value, peak, total, result, rows, first, last, batch, head, kv_len, scale,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Add the keys from first to last to a softmax that is under way."""
    for start in range(first, last, BLOCK_N):
        k = load_rows(key, batch, head, start)
        scores = tl.dot(q, k.T, input_precision="ieee")
        if MASKED:
            column = start + tl.arange(0, BLOCK_N)[None, :]
            visible = is_visible(rows[:, None], column, kv_len, CAUSAL)
            scores = tl.where(visible, scores, float("-inf"))
        larger = tl.maximum(peak, tl.max(scores, axis=1) * scale)
        weights = tl.exp2(scores * scale - larger[:, None])
        shrink = tl.exp2(peak - larger)  # what was summed relative to the old peak
        total = total * shrink + tl.sum(weights, axis=1)
        v = load_rows(value, batch, head, start)
        result = result * shrink[:, None]
        result = tl.dot(weights.to(v.dtype), v, result, input_precision="ieee")
        peak = larger
    return peak, total, result


@triton.jit
def attention_kernel(
    query, key, value, output, lse, heads, q_len, kv_len, bucket, scale,
    HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """BLOCK_M queries of one head, against all the keys that they see."""
    blocks = tl.cdiv(q_len, BLOCK_M)
    pair, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    batch, head = pair // heads, pair % heads
    full, last = kv_len, kv_len  # keys that no row needs masked, and all keys
    if CAUSAL:
        block = blocks - 1 - block  # the longest first
        full = tl.minimum(kv_len, block * BLOCK_M + 1)
        last = tl.minimum(kv_len, (block + 1) * BLOCK_M)
    full = full // BLOCK_N * BLOCK_N
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    q = load_rows(query, batch, head, block * BLOCK_M)
    peak = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    result = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    peak, total, result = attend(
        q, key, value, peak, total, result, rows, 0, full, batch, head, kv_len,
        scale * LOG2E, False, CAUSAL, BLOCK_N,
    )  # fmt: skip
    peak, total, result = attend(
        q, key, value, peak, total, result, rows, full, last, batch, head, kv_len,
        scale * LOG2E, True, CAUSAL, BLOCK_N,
    )  # fmt: skip
    store_rows(output, batch, head, block * BLOCK_M, result / total[:, None])
    place = pair.to(tl.int64) * q_len + rows
    tl.store(lse + place, (peak + tl.log2(total)) / LOG2E, mask=rows < q_len)


# [/forward]


@triton.jit
def delta_kernel(
    output, grad, delta, heads, q_len, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr
):
    """sum(output * grad) of each row: what softmax's gradient subtracts."""
    blocks = tl.cdiv(q_len, BLOCK_M)
    pair, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    o = load_rows(output, pair // heads, pair % heads, block * BLOCK_M)
    g = load_rows(grad, pair // heads, pair % heads, block * BLOCK_M)
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    sums = tl.sum(o.to(tl.float32) * g.to(tl.float32), axis=1)
    tl.store(delta + pair.to(tl.int64) * q_len + rows, sums, mask=rows < q_len)


@triton.jit
def add_queries(
    k, v, query, grad, lse, delta, dk, dv, columns, first, last,
    batch, head, q_len, kv_len, scale,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Add what the queries from first to last give to a block of keys and values.

    The scores are transposed, a row for each key. Past the end of the queries, q and
    the gradient are zeros, and so is what they add.
    """
    for start in range(first, last, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        q = load_rows(query, batch, head, start)
        g = load_rows(grad, batch, head, start)
        row_lse = tl.load(lse + rows, mask=rows < q_len, other=0.0) * LOG2E
        row_delta = tl.load(delta + rows, mask=rows < q_len, other=0.0)
        scores = tl.dot(k, q.T, input_precision="ieee")
        weights = tl.exp2(scores * scale - row_lse[None, :])
        if MASKED:
            visible = is_visible(rows[None, :], columns[:, None], kv_len, CAUSAL)
            weights = tl.where(visible, weights, 0.0)
        dv = tl.dot(weights.to(g.dtype), g, dv, input_precision="ieee")
        grad_weights = tl.dot(v, g.T, input_precision="ieee")
        grad_scores = weights * (grad_weights - row_delta[None, :])
        dk = tl.dot(grad_scores.to(q.dtype), q, dk, input_precision="ieee")
    return dk, dv


@triton.jit
def grad_key_value_kernel(
    query, key, value, grad, lse, delta, grad_key, grad_value,
    heads, q_len, kv_len, bucket, scale,
    HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Gradients of BLOCK_N keys and values, from all the queries that see them."""
    blocks = tl.cdiv(kv_len, BLOCK_N)
    pair, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    batch, head = pair // heads, pair % heads
    lse += pair.to(tl.int64) * q_len
    delta += pair.to(tl.int64) * q_len
    column = block * BLOCK_N
    columns = column + tl.arange(0, BLOCK_N)
    k = load_rows(key, batch, head, column)
    v = load_rows(value, batch, head, column)
    dk = tl.zeros((BLOCK_N, HEAD_DIM), tl.float32)
    dv = tl.zeros((BLOCK_N, HEAD_DIM), tl.float32)
    full = 0  # from here on, each query sees each of the keys
    if CAUSAL:
        full = tl.minimum(q_len, tl.cdiv(column + BLOCK_N - 1, BLOCK_M) * BLOCK_M)
        dk, dv = add_queries(
            k, v, query, grad, lse, delta, dk, dv, columns,
            column // BLOCK_M * BLOCK_M, full, batch, head, q_len, kv_len,
            scale * LOG2E, True, CAUSAL, BLOCK_M,
        )  # fmt: skip
    dk, dv = add_queries(
        k, v, query, grad, lse, delta, dk, dv, columns, full, q_len,
        batch, head, q_len, kv_len, scale * LOG2E, False, CAUSAL, BLOCK_M,
    )  # fmt: skip
    store_rows(grad_key, batch, head, column, dk * scale)
    store_rows(grad_value, batch, head, column, dv)


@triton.jit
def add_keys(
    q, g, row_lse, row_delta, key, value, dq, rows, first, last,
    batch, head, kv_len, scale,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Add what the keys from first to last give to the gradient of some queries."""
    for start in range(first, last, BLOCK_N):
        k = load_rows(key, batch, head, start)
        v = load_rows(value, batch, head, start)
        scores = tl.dot(q, k.T, input_precision="ieee")
        weights = tl.exp2(scores * scale - row_lse[:, None])
        if MASKED:
            column = start + tl.arange(0, BLOCK_N)[None, :]
            visible = is_visible(rows[:, None], column, kv_len, CAUSAL)
            weights = tl.where(visible, weights, 0.0)
        grad_weights = tl.dot(g, v.T, input_precision="ieee")
        grad_scores = weights * (grad_weights - row_delta[:, None])
        dq = tl.dot(grad_scores.to(k.dtype), k, dq, input_precision="ieee")
    return dq


@triton.jit
def grad_query_kernel(
    query, key, value, grad, lse, delta, grad_query,
    heads, q_len, kv_len, bucket, scale,
    HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The gradient of BLOCK_M queries, from all the keys that they see."""
    blocks = tl.cdiv(q_len, BLOCK_M)
    pair, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    batch, head = pair // heads, pair % heads
    full, last = kv_len, kv_len
    if CAUSAL:
        block = blocks - 1 - block
        full = tl.minimum(kv_len, block * BLOCK_M + 1)
        last = tl.minimum(kv_len, (block + 1) * BLOCK_M)
    full = full // BLOCK_N * BLOCK_N
    row = block * BLOCK_M
    rows = row + tl.arange(0, BLOCK_M)
    place = pair.to(tl.int64) * q_len + rows
    row_lse = tl.load(lse + place, mask=rows < q_len, other=0.0) * LOG2E
    row_delta = tl.load(delta + place, mask=rows < q_len, other=0.0)
    q = load_rows(query, batch, head, row)
    g = load_rows(grad, batch, head, row)
    dq = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    dq = add_keys(
        q, g, row_lse, row_delta, key, value, dq, rows, 0, full,
        batch, head, kv_len, scale * LOG2E, False, CAUSAL, BLOCK_N,
    )  # fmt: skip
    dq = add_keys(
        q, g, row_lse, row_delta, key, value, dq, rows, full, last,
        batch, head, kv_len, scale * LOG2E, True, CAUSAL, BLOCK_N,
    )  # fmt: skip
    store_rows(grad_query, batch, head, row, dq * scale)


TUNED = by_element_size(attention_kernel, FORWARD)
TUNED_KEY_VALUE = by_element_size(grad_key_value_kernel, GRAD_KEY_VALUE)
TUNED_QUERY = by_element_size(grad_query_kernel, GRAD_QUERY)
DELTA_ROWS = 64


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    r"""Scaled dot-product attention, without the matrix of scores in memory.

    .. math:: \text{softmax}(s \, Q K^T) \, V

    ``s`` is ``scale``. Sources: Vaswani et al., *Attention Is All You Need*
    (arXiv:1706.03762), eq. 1; for the computation by blocks, Dao et al.,
    *FlashAttention* (arXiv:2205.14135).

    Args:
        query: Shape ``[batch, heads, q_len, dim]``; fp16, bf16 or fp32; ``dim`` is 16,
            32, 64, 128 or 256. A tensor whose last dimension has stride 1, and whose
            rows begin at multiples of 16 bytes, is read without a copy, for example
            ``[batch, q_len, heads, dim]`` transposed.
        key: Shape ``[batch, heads, kv_len, dim]``, the dtype and device of ``query``.
        value: The shape, dtype and device of ``key``.
        causal: Whether query ``i`` sees only the keys 0 to ``i``. The mask begins in
            the upper left corner, as in
            ``torch.nn.functional.scaled_dot_product_attention``.
        scale: Positive. ``None`` stands for ``1 / sqrt(dim)``.

    Returns:
        A tensor of ``query``'s shape and dtype, whose heads and positions lie in memory
        in ``query``'s order. Scores and sums are fp32; the weights are rounded to the
        dtype before they multiply ``value``.

    Raises:
        TypeError: ``query``, ``key`` or ``value`` is not a tensor, or ``scale`` is not
            a real number.
        ValueError: ``scale`` is not positive and finite.
        NotImplementedError: Another dtype or ``dim``, a sparse or nested tensor, or
            forward mode.
        RuntimeError: Shapes, dtypes or devices do not fit together.
    """
    _check("opbook.triton.attention", query, key, value)
    if scale is None:
        scale = query.shape[-1] ** -0.5
    if not is_number(scale):
        raise TypeError(
            "opbook.triton.attention: scale must be a real number, "
            f"but got {type(scale).__name__}"
        )
    return attention_forward(query, key, value, causal, scale)[0]


@torch.library.custom_op("opbook_triton::attention", mutates_args=())
def attention_forward(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Compute :func:`attention`, and the log-sum-exp of each row for backward."""
    output, lse = empty_results(query, key, value, causal, scale)
    batch, heads, q_len, dim = query.shape
    kv_len = key.shape[2]
    if output.numel() == 0:
        return output, lse
    if kv_len == 0:  # a sum over no values
        return output.zero_(), lse.fill_(-math.inf)
    q, k, v = map(readable, (query, key, value))
    with device_of(query):
        TUNED[q.element_size()][over_blocks(batch * heads, q_len, "BLOCK_M")](
            *map(descriptor, (q, k, v, output)), lse, heads, q_len, kv_len,
            bucket_of(q_len), scale, HEAD_DIM=dim, CAUSAL=causal,
        )  # fmt: skip
    return output, lse


def _check(op: str, query: Tensor, key: Tensor, value: Tensor) -> None:
    tensors = {"query": query, "key": key, "value": value}
    for name, tensor in tensors.items():
        check_input(op, name, tensor)
        if tensor.dim() != 4:
            raise RuntimeError(
                f"{op}: expected {name} of shape [batch, heads, length, dim], "
                f"but got {list(tensor.shape)}"
            )
    batch, heads, _, dim = query.shape
    if dim not in HEAD_DIMS:
        raise NotImplementedError(
            f"{op}: query must have a dim of 16, 32, 64, 128 or 256, "
            f"but got {list(query.shape)}"
        )
    like_key = [batch, heads, key.shape[2], dim]
    check_like(op, "key", key, query, like_key, query.dtype)
    check_like(op, "value", value, query, like_key, query.dtype)


def _check_scale(op: str, scale: float) -> None:
    # The kernel multiplies after it looked for the largest score.
    if not 0 < scale < math.inf:
        raise ValueError(f"{op}: scale must be positive and finite, but is {scale}")


def readable(tensor: Tensor) -> Tensor:
    """The tensor, or a copy if no descriptor can hold its address and strides.

    ``contiguous()`` would not do: it leaves alone the stride of a dimension of size 1.
    """
    if INTERPRETED and tensor.dtype == torch.bfloat16:
        return tensor.float()  # the interpreter multiplies bf16 bit patterns
    size = tensor.element_size()
    *outer, last = tensor.stride()
    aligned = all(stride * size % 16 == 0 for stride in outer)
    if last == 1 and aligned and tensor.data_ptr() % 16 == 0:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def empty_in_order(tensor: Tensor) -> Tensor:
    """An uninitialized tensor with heads and positions in the order of this one."""
    batch, heads, length, dim = tensor.shape
    if tensor.stride(1) < tensor.stride(2):
        return tensor.new_empty(batch, length, heads, dim).transpose(1, 2)
    return tensor.new_empty(batch, heads, length, dim)


def descriptor(tensor: Tensor) -> TensorDescriptor:
    """Address, shape and strides; the config sets the rows of a block."""
    return TensorDescriptor.from_tensor(tensor, [1, 1, 1, tensor.shape[-1]])


def over_blocks(pairs: int, length: int, block: str):
    """A program for each block of each head of each batch."""
    return lambda config: (pairs * triton.cdiv(length, config[block]),)


def bucket_of(q_len: int) -> int:
    """What the tuner knows of the queries: not every length is worth a search."""
    return min(triton.next_power_of_2(q_len), 4096)


refuse_nested(attention_forward)


@attention_forward.register_fake
def empty_results(query, key, value, causal, scale):
    """Check the arguments, and allocate the results of forward."""
    op = "opbook.triton.attention"
    _check(op, query, key, value)
    _check_scale(op, scale)
    return empty_in_order(query), query.new_empty(query.shape[:3], dtype=torch.float32)


@torch.library.custom_op("opbook_triton::attention_backward", mutates_args=())
def attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor,
    lse: Tensor, causal: bool, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of :func:`attention` by query, key and value."""
    grads = empty_gradients(grad, query, key, value, output, lse, causal, scale)
    batch, heads, q_len, dim = query.shape
    kv_len = key.shape[2]
    if query.numel() == 0 or key.numel() == 0:
        for each in grads:
            each.zero_()
        return grads
    delta, lse = torch.empty_like(lse), lse.contiguous()
    pairs, size = batch * heads, grad.element_size()
    q, k, v, o, g = map(readable, (query, key, value, output, grad))
    lengths = heads, q_len, kv_len, bucket_of(q_len), scale
    constants = {"HEAD_DIM": dim, "CAUSAL": causal}
    with device_of(query):
        rows = TensorDescriptor.from_tensor
        block = [1, 1, DELTA_ROWS, dim]
        delta_kernel[(pairs * triton.cdiv(q_len, DELTA_ROWS),)](
            rows(o, block), rows(g, block), delta, heads, q_len,
            HEAD_DIM=dim, BLOCK_M=DELTA_ROWS,
        )  # fmt: skip
        TUNED_KEY_VALUE[size][over_blocks(pairs, kv_len, "BLOCK_N")](
            *map(descriptor, (q, k, v, g)), lse, delta,
            *map(descriptor, grads[1:]), *lengths, **constants,
        )  # fmt: skip
        TUNED_QUERY[size][over_blocks(pairs, q_len, "BLOCK_M")](
            *map(descriptor, (q, k, v, g)), lse, delta,
            descriptor(grads[0]), *lengths, **constants,
        )  # fmt: skip
    return grads


def _check_backward(grad, query, key, value, output, lse, scale) -> None:
    op = "opbook_triton::attention_backward"
    _check(op, query, key, value)
    _check_scale(op, scale)
    check_like(op, "grad", grad, query, query.shape, query.dtype)
    check_like(op, "output", output, query, query.shape, query.dtype)
    check_like(op, "lse", lse, query, query.shape[:3], torch.float32)


refuse_nested(attention_backward)
register_autograd("opbook_triton::attention_backward", None)


@attention_backward.register_fake
def empty_gradients(grad, query, key, value, output, lse, causal, scale):
    """Check the arguments, and allocate the results of backward."""
    _check_backward(grad, query, key, value, output, lse, scale)
    return empty_in_order(query), empty_in_order(key), empty_in_order(value)


# [autograd]
def _save(ctx, inputs, output) -> None:
    *tensors, ctx.causal, ctx.scale = inputs
    _, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, *output)


def _backward(ctx, grad: Tensor | None, _):
    if grad is None:
        return (None,) * 5
    grads = attention_backward(grad, *ctx.saved_tensors, ctx.causal, ctx.scale)
    return *grads, None, None


register_autograd("opbook_triton::attention", _backward, setup_context=_save)
# [/autograd]

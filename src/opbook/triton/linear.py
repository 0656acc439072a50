"""Matrix product with ``tl.dot``, and the same kernel with bias and GELU fused in."""

import math
from collections.abc import Callable
from functools import cache

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


def configs(hip: bool) -> list[triton.Config]:
    """Tiles to choose from. An AMD GPU's shared memory has room for two stages."""
    return [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k},
            num_warps=warps,
            num_stages=2 if hip else stages,
        )
        for m, n, k, warps, stages in (
            (64, 64, 64, 4, 4),
            (64, 32, 128, 4, 5),
            (16, 32, 256, 4, 6),
            (128, 64, 64, 4, 4),
            (128, 128, 64, 8, 4),
            (128, 256, 64, 8, 4),
        )
    ]


CONFIGS = configs(hip=bool(torch.version.hip))
FEW_ROWS = 64  # up to here the weight is most of the bytes, and tiles are small


def fitting(configs: list[triton.Config], arguments: dict, **_) -> list[triton.Config]:
    """Keep the configs that suit the number of rows: each costs a compilation."""
    few = arguments["bucket"] <= FEW_ROWS
    return [config for config in configs if few == (config.kwargs["BLOCK_M"] <= 64)]


# [kernel]
# The interpreter has no device to time on, so there it gets one config.
@triton.autotune(
    CONFIGS[:1] if INTERPRETED else CONFIGS,
    key=["bucket", "N", "K", "TMA"],
    prune_configs_by={"early_config_prune": fitting},
)
@triton.jit
def linear_kernel(
    a, b, bias, output, M, bucket, N, K,
    a_m, a_k, b_n, b_k,
    HAS_BIAS: tl.constexpr, GELU: tl.constexpr,
    SPLITS: tl.constexpr, TMA: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Tiles of GELU(a @ b^T + bias), with the sums in fp32 registers.

    A program computes one tile after another, as many as the grid leaves it. Each of
    SPLITS programs adds up a part of K, and writes to a part of the output. The tuner
    reads `bucket`, and nobody else.
    """
    # GROUP rows of tiles are computed together: their programs share what is in L2.
    GROUP: tl.constexpr = 8
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    part = tl.program_id(1)
    depth = tl.cdiv(K, SPLITS * BLOCK_K) * BLOCK_K
    depth, first = tl.minimum(depth, K - part * depth), part * depth
    k = tl.arange(0, BLOCK_K)
    if TMA:  # the hardware computes the addresses, and the masks
        a_tiles = tl.make_tensor_descriptor(a, [M, K], [a_m, 1], [BLOCK_M, BLOCK_K])
        b_tiles = tl.make_tensor_descriptor(b, [N, K], [b_n, 1], [BLOCK_N, BLOCK_K])
    step = tl.full((), BLOCK_K, tl.int64)
    # Rows have 64 bits, so that addresses have; those of a descriptor have 32.
    start = tl.program_id(0) if TMA else tl.program_id(0).to(tl.int64)
    # One loop out of two: the loads of the next tile begin before this one is stored.
    # With parts of K, each program has one tile.
    for tile in tl.range(
        start, down * across, tl.num_programs(0), flatten=TMA and SPLITS == 1
    ):
        group = tile // (GROUP * across)
        height = min(GROUP, down - group * GROUP)
        inside = tile % (GROUP * across)
        row, column = group * GROUP + inside % height, inside // height
        m = row * BLOCK_M + tl.arange(0, BLOCK_M)
        n = column * BLOCK_N + tl.arange(0, BLOCK_N)
        if not TMA:
            a_place = a + m[:, None] * a_m + (first + k)[None, :].to(tl.int64) * a_k
            b_place = b + n[:, None] * b_n + (first + k)[None, :].to(tl.int64) * b_k
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for done in range(0, depth, BLOCK_K):
            if TMA:
                a_tile = a_tiles.load([row * BLOCK_M, first + done])
                b_tile = b_tiles.load([column * BLOCK_N, first + done])
            else:
                is_k = k[None, :] < depth - done
                a_tile = tl.load(a_place, (m[:, None] < M) & is_k, 0.0)
                b_tile = tl.load(b_place, (n[:, None] < N) & is_k, 0.0)
                a_place += step * a_k
                b_place += step * b_k
            # "ieee": fp32 stays fp32, where TF32 would keep ten bits of its fraction.
            total = tl.dot(a_tile, b_tile.T, total, input_precision="ieee")
        if HAS_BIAS:
            total += tl.load(bias + n, n < N, 0.0).to(tl.float32)[None, :]
        if GELU:
            total = gelu(total, output.dtype.element_ty)
        place = (part * M + m[:, None]).to(tl.int64) * N + n[None, :]
        is_inside = (m[:, None] < M) & (n[None, :] < N)
        tl.store(output + place, total.to(output.dtype.element_ty), is_inside)


@triton.jit
def gelu(x, dtype: tl.constexpr):
    """Multiply x by Phi(x), the normal distribution, for a result of that dtype."""
    if dtype == tl.float32:
        return 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    # For 16 bits, less than half the instructions, and no registers spill. The
    # polynomial is fitted to log2(Phi(-|x|)). The relative error of Phi is below 1e-4
    # where fp16 has a result, and below 1e-2 for |x| up to 10.
    size = tl.abs(x)
    log = -1.1816428e-06 * size + 4.6489843e-05
    log = log * size - 7.9341248e-04
    log = log * size + 7.8910822e-03
    log = log * size - 5.2533626e-02
    log = log * size - 4.6004374e-01
    log = log * size - 1.1505849
    tail = tl.exp2(log * size - 1.0000438)
    return x * tl.where(x < 0, tail, 1 - tail)


@triton.jit
def finish_kernel(
    parts, bias, output, count, N,
    HAS_BIAS: tl.constexpr, GELU: tl.constexpr, SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Add up the parts, in the same order in every run; then bias and GELU."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    total = tl.zeros((BLOCK,), tl.float32)
    for part in range(SPLITS):
        total += tl.load(parts + part * count + place, inside, 0.0)
    if HAS_BIAS:
        total += tl.load(bias + place % N, inside, 0.0).to(tl.float32)
    if GELU:
        total = gelu(total, output.dtype.element_ty)
    tl.store(output + place, total.to(output.dtype.element_ty), inside)


# [/kernel]


def _launch(a: Tensor, b: Tensor, bias: Tensor | None, gelu: bool) -> Tensor:
    """Compute ``a @ b.T``: ``a`` is [M, K], ``b`` is [N, K], both of any strides."""
    (rows, depth), columns = a.shape, b.shape[0]
    output = a.new_empty(rows, columns)
    if output.numel() == 0:
        return output
    bucket = bucket_of(rows)
    splits = splits_of(bucket, columns, depth, a.device)
    if INTERPRETED and a.dtype == torch.bfloat16:
        a, b = a.float(), b.float()  # the interpreter multiplies bf16 bit patterns
    tma = prepare_tma(a, b)
    end = {"HAS_BIAS": bias is not None, "GELU": gelu}
    with device_of(a):
        if splits == 1:
            target, options = output, end
        else:
            target = a.new_empty(splits, rows, columns, dtype=torch.float32)
            options = {"HAS_BIAS": False, "GELU": False}
        linear_kernel[grid_of(a, b, tma, splits)](
            a, b, bias, target, rows, bucket, columns, depth,
            *a.stride(), *b.stride(), SPLITS=splits, TMA=tma, **options,
        )  # fmt: skip
        if splits > 1:
            finish_kernel[(triton.cdiv(output.numel(), BLOCK),)](
                target, bias, output, output.numel(), columns,
                SPLITS=splits, BLOCK=BLOCK, **end,
            )  # fmt: skip
    return output


BLOCK = 1024  # elements of a program that adds up parts
MIN_DEPTH = 4096  # of a part: writing it and reading it again has to pay


def splits_of(rows: int, columns: int, depth: int, device: torch.device) -> int:
    """In how many parts to add up K, so that few tiles fill all multiprocessors."""
    if rows <= FEW_ROWS:
        return 1
    tiles = triton.cdiv(rows, 128) * triton.cdiv(columns, 256)
    return max(1, min(_processors(device) // tiles, depth // MIN_DEPTH))


@cache
def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 4  # so few that in tests a program has several tiles
    return torch.cuda.get_device_properties(device).multi_processor_count


def prepare_tma(a: Tensor, b: Tensor) -> bool:
    """Whether descriptors load both matrices. If so, Triton gets room for them."""
    if a.shape[0] <= FEW_ROWS or not (suits_tma(a) and suits_tma(b)):
        return False
    # Before each launch: Triton remembers it for this thread alone.
    triton.set_allocator(_room_for_descriptors)
    return True


def suits_tma(matrix: Tensor) -> bool:
    """Whether the GPU has a unit that copies tiles, and the matrix fits its rules."""
    if matrix.element_size() != 2 or not _has_tma(matrix.device):
        return False
    if matrix.shape[0] >= 2**30:  # its coordinates have 32 bits
        return False
    row, column = matrix.stride()
    return column == 1 and row % 8 == 0 and row > 0 and matrix.data_ptr() % 16 == 0


@cache
def _has_tma(device: torch.device) -> bool:
    if device.type != "cuda":
        return True  # the interpreter computes what it would
    return not torch.version.hip and torch.cuda.get_device_capability(device) >= (9, 0)


def _room_for_descriptors(size: int, alignment: int, stream: int | None) -> Tensor:
    return torch.empty(size, dtype=torch.int8, device="cuda")


def grid_of(
    a: Tensor, b: Tensor, tma: bool, splits: int = 1
) -> Callable[[dict], tuple[int, int]]:
    """The grid of ``a @ b.T``, for each config that the tuner tries.

    Without descriptors, each tile has its program. With them, a program costs more to
    start and the next tile less: as many programs as multiprocessors share the tiles.
    """

    def grid(config):
        down = triton.cdiv(a.shape[0], config["BLOCK_M"])
        tiles = down * triton.cdiv(b.shape[0], config["BLOCK_N"])
        return min(tiles, _processors(a.device)) if tma else tiles, splits

    return grid


def bucket_of(rows: int) -> int:
    """What the tuner knows of the rows: not every batch size is worth a search."""
    return triton.next_power_of_2(rows)


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


@torch.library.custom_op("opbook_triton::linear_gelu", mutates_args=())
def linear_gelu(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Apply a linear layer and the exact GELU of :func:`opbook.linear_gelu`.

    One kernel does both, or two if few tiles would fill the GPU only in part.

    Args:
        input: Shape ``[..., in_features]``, any strides; fp16, bf16 or fp32.
        weight: Shape ``[out_features, in_features]``, any strides, same dtype.
        bias: Shape ``[out_features]``, same dtype. ``None`` adds nothing.

    Returns:
        A contiguous tensor of shape ``[..., out_features]`` and ``input``'s dtype. Sums
        and GELU run in fp32. Autocast has no rule for this operator.

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

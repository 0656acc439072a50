"""RMSNorm in Triton: forward, and both gradients with no atomic addition."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from opbook.checks import is_number
from opbook.forward_mode import register_autograd
from opbook.triton.launch import (
    block_of,
    check_input,
    check_like,
    device_of,
    refuse_nested,
    rows_of,
    warps_of,
)

# Elements that a program takes at once, if its rows are short. Its four warps have two
# vectors of bf16 a thread, or one where a warp has 64 lanes.
TILE = 2048
# Forward takes a row of more than SHORT elements in quarters of the next power of two,
# because three may do: 5120 elements are three blocks of 2048. A program can keep four
# of WIDEST_BLOCK elements; longer rows it reads twice.
SHORT, WIDEST_BLOCK = 512, 8192
# Warps that walk over the rows in backward: enough to fill a GPU, few enough that
# adding up their sums costs little.
BACKWARD_WARPS = 4096
# Elements of a long row that a program of backward takes.
LONG_ROW_BLOCK = 2048
VECTOR = 16  # Triton loads vectors if it knows that rows begin at multiples of this


# [forward]
@triton.jit(do_not_specialize=["rows"])  # one compilation for all numbers of rows
def rms_norm_kernel(
    input, weight, output, rrms, rows, hidden, eps,
    HAS_WEIGHT: tl.constexpr, PIECES: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """ROWS rows of y = x * rrms * w, and rrms = 1 / sqrt(mean(x^2) + eps) of each."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    input += first * hidden
    output += first * hidden
    row = tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    is_row = row < rows - first
    squares = tl.zeros((ROWS, BLOCK), tl.float32)
    if PIECES > 0:  # the rows stay in registers
        pieces, place = (), row * hidden + column
        for piece in tl.static_range(PIECES):
            at = piece * BLOCK
            inside = is_row & (at + column < hidden)
            x = tl.load(input + at + place, mask=inside, other=0.0).to(tl.float32)
            squares += x * x
            pieces += (x,)
        scale = tl.rsqrt(tl.sum(squares, axis=1, keep_dims=True) / hidden + eps)
        for piece in tl.static_range(PIECES):
            at = piece * BLOCK
            is_column = at + column < hidden
            y = pieces[piece] * scale
            if HAS_WEIGHT:
                w = tl.load(weight + at + column, mask=is_column, other=0.0)
                y *= w.to(tl.float32)
            y = y.to(output.dtype.element_ty)
            tl.store(output + at + place, y, mask=is_row & is_column)
    else:  # one row, which should wait in the cache for its second reading
        for start in range(0, hidden, BLOCK):
            place = start + column
            inside = place < hidden
            x = tl.load(input + place, inside, 0.0, eviction_policy="evict_last")
            x = x.to(tl.float32)
            squares += x * x
        scale = tl.rsqrt(tl.sum(squares, axis=1, keep_dims=True) / hidden + eps)
        for start in range(0, hidden, BLOCK):
            place = start + column
            inside = place < hidden
            x = tl.load(input + place, mask=inside, eviction_policy="evict_first")
            y = x.to(tl.float32) * scale
            if HAS_WEIGHT:
                w = tl.load(weight + place, mask=inside, eviction_policy="evict_last")
                y *= w.to(tl.float32)
            tl.store(output + place, y.to(output.dtype.element_ty), mask=inside)
    tl.store(rrms + first + row, scale, mask=is_row)


# [/forward]


# [backward]
@triton.jit(do_not_specialize=["rows", "rows_per_chunk"])
def rms_norm_backward_kernel(
    grad, input, weight, rrms, means, grad_input, partial, rows, hidden, rows_per_chunk,
    HAS_WEIGHT: tl.constexpr, ONE_BLOCK: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A chunk of rows of the input's gradient, and their sum for the weight's gradient.

    dx = r * (g * w - x * r^2 * mean(g * w * x)) and dw = sum over rows of g * x * r.
    Each program has a place of its own in `partial`: no atomics, so two runs agree.
    """
    # Blocks of a long row on the first axis: the second ends at 65535 programs.
    left = tl.program_id(0).to(tl.int64) * BLOCK
    chunk = tl.program_id(1).to(tl.int64)
    first = chunk * rows_per_chunk
    last = tl.minimum(first + rows_per_chunk, rows)
    row = tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    is_column = column < hidden - left
    place = row * hidden + column
    sums = tl.zeros((ROWS, BLOCK), tl.float32)
    if HAS_WEIGHT and ROWS > 1:
        w = tl.load(weight + left + column, mask=is_column, other=0.0).to(tl.float32)
    for start in range(first, last, ROWS):
        is_row = row < last - start
        inside = is_row & is_column
        here = start * hidden + left
        x = tl.load(input + here + place, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(grad + here + place, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(rrms + start + row, mask=is_row, other=0.0)
        if HAS_WEIGHT:
            sums += g * x * scale
            if ROWS == 1:  # to load it again is cheaper than the registers to keep it
                w = tl.load(weight + left + column, mask=is_column, other=0.0)
            g *= w.to(tl.float32)
        if ONE_BLOCK:
            mean = tl.sum(g * x, axis=1, keep_dims=True) / hidden
        else:  # of the whole row, by the kernel below
            mean = tl.load(means + start + row, mask=is_row, other=0.0)
        dx = scale * (g - x * scale * scale * mean)
        tl.store(
            grad_input + here + place, dx.to(grad_input.dtype.element_ty), mask=inside
        )
    if HAS_WEIGHT:
        total = tl.sum(sums, axis=0, keep_dims=True)
        mine = partial + chunk * hidden + left
        tl.store(mine + column, total, mask=is_column)


@triton.jit
def mean_product_kernel(
    grad, input, weight, means, hidden,
    HAS_WEIGHT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """mean(g * w * x) of a long row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    products = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, hidden, BLOCK):
        place = start + column
        inside = place < hidden
        x = tl.load(input + row * hidden + place, mask=inside, other=0.0)
        g = tl.load(grad + row * hidden + place, mask=inside, other=0.0).to(tl.float32)
        if HAS_WEIGHT:
            g *= tl.load(weight + place, mask=inside, other=0.0).to(tl.float32)
        products += g * x.to(tl.float32)
    tl.store(means + row, tl.sum(products, axis=0) / hidden)


# [/backward]


# [operator]
def rms_norm(input: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """Divide every row by its root mean square, then scale it.

    The formula is that of :func:`opbook.rms_norm`.

    Args:
        input: Shape ``[..., hidden]``, any strides; fp16, bf16 or fp32.
        weight: Shape ``[hidden]``, a dtype of the same list. ``None`` scales by one.
        eps: Added to the mean square.

    Returns:
        A contiguous tensor of ``input``'s shape and dtype. Sums run in fp32.

    Raises:
        TypeError: ``eps`` is not a real number (``None`` is not one here), or is a
            tensor that requires grad.
        NotImplementedError: Another dtype, a sparse or nested tensor, or forward mode.
        RuntimeError: ``input`` has no dimension, or a shape or device does not fit.
    """
    if not is_number(eps):
        raise TypeError(
            "opbook.triton.rms_norm: eps must be a real number, "
            f"but got {type(eps).__name__}"
        )
    return _forward(input, weight, eps)[0]


@torch.library.custom_op("opbook_triton::rms_norm_forward", mutates_args=())
def rms_norm_forward(
    input: Tensor, weight: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """Compute :func:`rms_norm`, and the fp32 ``rrms`` of each row for backward."""
    _check_forward(input, weight)
    input = input.contiguous()
    output = torch.empty_like(input)
    rrms = input.new_empty(input.shape[:-1], dtype=torch.float32)
    rows, hidden = rows_of(input)
    if rows > 0:
        tile = _tile_of(hidden)
        with device_of(input):
            rms_norm_kernel[(triton.cdiv(rows, tile["ROWS"]),)](
                input, _contiguous(weight), output, rrms, rows, hidden, eps,
                HAS_WEIGHT=weight is not None, **tile,
            )  # fmt: skip
    return output, rrms


# [/operator]


def _tile_of(hidden: int) -> dict[str, int]:
    """A program's rows, the blocks of each, and warps: short rows share a program."""
    block, elements = triton.next_power_of_2(hidden), TILE
    if hidden > SHORT:
        block, elements = min(block // 4, WIDEST_BLOCK), TILE // 2
    rows, warps = max(1, elements // block), _warps_of_vectors(max(TILE // 2, block))
    pieces = triton.cdiv(hidden, block)
    pieces = pieces if pieces <= 4 else 0  # none is kept of a row that is read twice
    return {"PIECES": pieces, "ROWS": rows, "BLOCK": block, "num_warps": warps}


def _backward_tile_of(input: Tensor) -> dict[str, int | bool]:
    """Rows, elements and warps of a program of backward: fewer, since it keeps more."""
    hidden = input.shape[-1]
    # Rows that begin anywhere are loaded element by element, which takes registers.
    begins_anywhere = hidden % VECTOR > 0
    block = block_of(hidden)
    if hidden > block or (begins_anywhere and block > WIDEST_BLOCK):
        block = LONG_ROW_BLOCK
    rows = max(1, TILE // 2 // block)
    warps = _warps_of_vectors(rows * block) if rows > 1 else warps_of(block)
    tile = {"ROWS": rows, "BLOCK": block, "num_warps": warps}
    # So that an NVIDIA multiprocessor holds 32 warps. Rows in fp32 would spill.
    narrow = input.element_size() < 4 and not begins_anywhere
    if torch.version.hip is None and narrow:
        tile["maxnreg"] = 64
    return tile | {"ONE_BLOCK": hidden <= block}


def _warps_of_vectors(elements: int) -> int:
    """Warps whose threads have eight elements each: in bf16 a vector of 16 bytes."""
    return warps_of(elements if torch.version.hip else 2 * elements)


def _contiguous(weight: Tensor | None) -> Tensor | None:
    return None if weight is None else weight.contiguous()


def _check(op: str, input: Tensor, weight: Tensor | None) -> None:
    check_input(op, "input", input)
    torch._check(
        input.dim() >= 1,
        lambda: f"{op}: expected input to have at least 1 dimension, but got shape []",
    )
    if weight is not None:
        check_input(op, "weight", weight)
        check_like(op, "weight", weight, input, input.shape[-1:])


def _check_forward(input: Tensor, weight: Tensor | None) -> None:
    _check("opbook.triton.rms_norm", input, weight)


refuse_nested(rms_norm_forward)


@rms_norm_forward.register_fake
def _(input, weight, eps):
    _check_forward(input, weight)
    output = torch.empty_like(input, memory_format=torch.contiguous_format)
    return output, input.new_empty(input.shape[:-1], dtype=torch.float32)


@torch.library.custom_op("opbook_triton::rms_norm_backward", mutates_args=())
def rms_norm_backward(
    grad: Tensor, input: Tensor, weight: Tensor | None, rrms: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of :func:`rms_norm` by input and, in fp32, by weight (or empty)."""
    _check_backward(grad, input, weight, rrms)
    grad, input = grad.contiguous(), input.contiguous()
    grad_input = torch.empty_like(input)
    rows, hidden = rows_of(input)
    if rows == 0:
        return grad_input, rrms.new_zeros((0,) if weight is None else weight.shape)
    tile = _backward_tile_of(input)
    columns = triton.cdiv(hidden, tile["BLOCK"])  # programs side by side on a row
    programs = max(1, BACKWARD_WARPS // (tile["num_warps"] * columns))
    tiles = triton.cdiv(triton.cdiv(rows, tile["ROWS"]), programs)  # of a program
    per_chunk = tiles * tile["ROWS"]
    chunks = triton.cdiv(rows, per_chunk)
    partial = rrms.new_empty((0,) if weight is None else (chunks, hidden))
    means = None if tile["ONE_BLOCK"] else torch.empty_like(rrms)
    weight = _contiguous(weight)
    has_weight = weight is not None
    with device_of(input):
        if means is not None:
            mean_product_kernel[(rows,)](
                grad, input, weight, means, hidden, HAS_WEIGHT=has_weight,
                BLOCK=tile["BLOCK"], num_warps=tile["num_warps"],
            )  # fmt: skip
        rms_norm_backward_kernel[(columns, chunks)](
            grad, input, weight, rrms, means, grad_input, partial,
            rows, hidden, per_chunk,
            HAS_WEIGHT=has_weight, **tile,
        )  # fmt: skip
    return grad_input, partial if weight is None else partial.sum(0)


def _check_backward(
    grad: Tensor, input: Tensor, weight: Tensor | None, rrms: Tensor
) -> None:
    op = "opbook_triton::rms_norm_backward"
    _check(op, input, weight)
    check_like(op, "grad", grad, input, input.shape, input.dtype)
    check_like(op, "rrms", rrms, input, input.shape[:-1], torch.float32)


refuse_nested(rms_norm_backward)
_gradients = register_autograd("opbook_triton::rms_norm_backward", None)


@rms_norm_backward.register_fake
def _(grad, input, weight, rrms):
    _check_backward(grad, input, weight, rrms)
    grad_input = torch.empty_like(input, memory_format=torch.contiguous_format)
    shape = (0,) if weight is None else weight.shape
    return grad_input, input.new_empty(shape, dtype=torch.float32)


# [autograd]
def _save(ctx, inputs, output) -> None:
    input, weight, _ = inputs
    _, rrms = output
    ctx.mark_non_differentiable(rrms)
    ctx.set_materialize_grads(False)  # or a kernel fills one of rrms with zeros
    ctx.save_for_backward(input, weight, rrms)


def _backward(ctx, grad: Tensor | None, _):
    if grad is None:
        return None, None, None
    input, weight, rrms = ctx.saved_tensors
    grad_input, grad_weight = _gradients(grad, input, weight, rrms)
    return grad_input, None if weight is None else grad_weight.to(weight.dtype), None


_forward = register_autograd(
    "opbook_triton::rms_norm_forward", _backward, setup_context=_save
)
# [/autograd]

"""Rows grouped by expert and put back, each the gradient of the other, in Triton."""

import os

import torch
import torch.nn.functional as F
from torch import Tensor

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import triton
import triton.language as tl


# [route]
def group(experts: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sort the choices of all tokens by expert, with no number read by the CPU.

    Args:
        experts: The experts that each token chose, [tokens, choices].
        count: How many experts there are.

    Returns:
        The choice in each row, the row of each choice, and the end of each expert's
        rows, in int32.
    """
    chosen, choice = experts.flatten().sort(stable=True)
    row = torch.empty_like(choice)
    row[choice] = torch.arange(choice.shape[0], device=choice.device)
    every = torch.arange(count, device=choice.device, dtype=chosen.dtype)
    return choice, row, torch.searchsorted(chosen, every, right=True, out_int32=True)


# [/route]


# [kernels]
@triton.jit
def spread_kernel(
    x,
    choice,
    weight,
    rows,
    choices,
    columns,
    WEIGHTED: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Row i gets the token that made its choice, times the weight of the choice."""
    i = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    made = tl.load(choice + i)
    value = tl.load(x + made // choices * columns + column, mask=column < columns)
    if WEIGHTED:
        wide = tl.float64 if value.dtype == tl.float64 else tl.float32
        value = value.to(wide) * tl.load(weight + made).to(wide)
    value = value.to(rows.dtype.element_ty)
    tl.store(rows + i * columns + column, value, mask=column < columns)


@triton.jit
def combine_kernel(
    rows, row, weight, y, choices, columns, WEIGHTED: tl.constexpr, WIDE: tl.constexpr
):
    """A token gets the weighted sum of its rows, in the order of its choices."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    inside = column < columns
    wide = tl.float64 if rows.dtype.element_ty == tl.float64 else tl.float32
    total = tl.zeros((WIDE,), wide)
    for made in range(token * choices, (token + 1) * choices):
        value = tl.load(rows + tl.load(row + made) * columns + column, mask=inside)
        value = value.to(wide)
        if WEIGHTED:
            value *= tl.load(weight + made).to(wide)
        total += value
    tl.store(y + token * columns + column, total.to(y.dtype.element_ty), mask=inside)


# [/kernels]


# [operators]
def _launch(
    kernel, count: int, source: Tensor, place, weight, result, choices
) -> Tensor:
    columns, wide = source.shape[1], 256
    source, place = source.contiguous(), place.contiguous()
    weighted = weight is not None
    weight = weight.contiguous() if weighted else place  # a pointer that nobody reads
    if result.numel() > 0:
        with torch.cuda.device_of(source):
            kernel[count, triton.cdiv(columns, wide)](
                source, place, weight, result, choices, columns, weighted, wide
            )
    return result


@torch.library.custom_op("moe::spread", mutates_args=())
def spread(
    x: Tensor, choice: Tensor, row: Tensor, weight: Tensor | None = None
) -> Tensor:
    """Copy each token to the rows of its choices: [tokens, columns] to [rows, columns].

    Args:
        x: A matrix with one row for each token.
        choice: The choice in each row, and `row`: the row of each choice; see `group`.
        row: See `choice`.
        weight: One number for each choice, [tokens, choices].
    """
    _check("spread", x, choice, row, weight)
    result, choices = (
        x.new_empty(choice.shape[0], x.shape[1]),
        choice.shape[0] // max(x.shape[0], 1),
    )
    return _launch(spread_kernel, choice.shape[0], x, choice, weight, result, choices)


@torch.library.custom_op("moe::combine", mutates_args=())
def combine(
    rows: Tensor,
    choice: Tensor,
    row: Tensor,
    choices: int,
    weight: Tensor | None = None,
) -> Tensor:
    """Add up the rows of each token's choices: [rows, columns] to [tokens, columns]."""
    _check("combine", rows, choice, row, weight)
    if choices < 1 or rows.shape[0] != row.shape[0] or row.shape[0] % choices != 0:
        wanted = f"a row for each of {choices} choices of each token"
        raise ValueError(f"combine: expected {wanted}, but got {rows.shape[0]} rows")
    tokens = row.shape[0] // choices
    result = rows.new_empty(tokens, rows.shape[1])
    return _launch(combine_kernel, tokens, rows, row, weight, result, choices)


def _check(name: str, x: Tensor, choice: Tensor, row: Tensor, weight) -> None:
    if x.dim() != 2 or not x.is_floating_point():
        raise ValueError(f"{name}: expected a matrix of floats, but got {[*x.shape]}")
    if choice.shape != row.shape or {choice.dtype, row.dtype} != {torch.int64}:
        raise ValueError(f"{name}: expected choice and row of one shape, in int64")
    if weight is not None and weight.numel() != choice.numel():
        got = f"{weight.numel()} for {choice.numel()}"
        raise ValueError(f"{name}: expected a weight for each choice, but got {got}")


spread.register_fake(
    lambda x, choice, row, weight=None: x.new_empty(choice.shape[0], x.shape[1])
)
combine.register_fake(
    lambda rows, choice, row, choices, weight=None: rows.new_empty(
        row.shape[0] // choices, rows.shape[1]
    )
)
# [/operators]


# [gradients]
def _save_spread(ctx, inputs, output):
    x, choice, row, weight = inputs
    ctx.choices = choice.shape[0] // max(x.shape[0], 1)
    ctx.weighted = weight is not None
    ctx.save_for_backward(choice, row, *((x, weight) if ctx.weighted else ()))


def _spread_backward(ctx, grad):
    choice, row, *rest = ctx.saved_tensors
    x, weight = rest or (None, None)
    grad_x = combine(grad, choice, row, ctx.choices, weight)
    return grad_x, None, None, _weight_gradient(ctx, grad, row, x, weight, 3)


def _save_combine(ctx, inputs, output):
    rows, choice, row, ctx.choices, weight = inputs
    ctx.weighted = weight is not None
    ctx.save_for_backward(choice, row, *((rows, weight) if ctx.weighted else ()))


def _combine_backward(ctx, grad):
    choice, row, *rest = ctx.saved_tensors
    rows, weight = rest or (None, None)
    grad_rows = spread(grad, choice, row, weight)
    return (
        grad_rows,
        None,
        None,
        None,
        _weight_gradient(ctx, rows, row, grad, weight, 4),
    )


def _weight_gradient(ctx, rows, row, tokens, weight, position):
    """Multiply each row with its token, and add up the products."""
    if weight is None or not ctx.needs_input_grad[position]:
        return None
    of_choices = rows[row].unflatten(0, (-1, ctx.choices))
    products = (of_choices * tokens[:, None]).sum(
        -1, dtype=torch.promote_types(rows.dtype, torch.float32)
    )
    return products.to(weight.dtype).reshape(weight.shape)


spread.register_autograd(_spread_backward, setup_context=_save_spread)
combine.register_autograd(_combine_backward, setup_context=_save_combine)
# [/gradients]


# [layer]
def mixture(
    x: Tensor, router: Tensor, up: Tensor, down: Tensor, choices: int
) -> Tensor:
    """Send each token through its best experts, [experts, columns, hidden] and back."""
    weight, experts = (x @ router).float().softmax(-1).topk(choices)
    choice, row, ends = group(experts, up.shape[0])
    rows = spread(x, choice, row)
    hidden = F.silu(F.grouped_mm(rows, up, offs=ends))
    return combine(F.grouped_mm(hidden, down, offs=ends), choice, row, choices, weight)


# [/layer]


# [loop]
def loop(x: Tensor, router: Tensor, up: Tensor, down: Tensor, choices: int) -> Tensor:
    """The same layer, expert by expert: the CPU reads how many rows each expert has."""
    weight, experts = (x @ router).float().softmax(-1).topk(choices)
    y = torch.zeros_like(x, dtype=torch.float32)
    for expert in range(up.shape[0]):
        token, choice = (experts == expert).nonzero(as_tuple=True)
        rows = F.silu(x[token] @ up[expert]) @ down[expert]
        y = y.index_add(0, token, weight[token, choice, None] * rows.float())
    return y.to(x.dtype)


# [/loop]

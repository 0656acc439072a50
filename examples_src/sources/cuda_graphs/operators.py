"""Operators for CUDA graphs: right ones, and beside each the wrong variants."""

import contextlib
import functools

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op

GPU = torch.cuda.is_available() and not triton.knobs.runtime.interpret
BLOCK = 1024


def blocks_of(tensor: Tensor) -> tuple[int]:
    """The grid of a kernel that takes BLOCK elements a program."""
    return (triton.cdiv(tensor.numel(), BLOCK),)


# ---- Streams


@triton.jit
def scale_kernel(input, output, factor, count, BLOCK: tl.constexpr):
    """Multiply one block of elements by a number."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(input + place, mask=place < count)
    tl.store(output + place, x * factor, mask=place < count)


def launch_scale(input: Tensor, output: Tensor, factor: float) -> None:
    """Launch on the stream that is current: Triton asks PyTorch for it."""
    torch._check(output.is_contiguous(), lambda: "expected a contiguous tensor")
    grid, count = blocks_of(input), input.numel()
    with torch.cuda.device_of(input):  # or Triton launches on the current GPU
        scale_kernel[grid](input.contiguous(), output, factor, count, BLOCK=BLOCK)


@functools.cache
def side_of(device: torch.device) -> torch.cuda.Stream | None:
    """Another stream of a GPU: a stream belongs to one. On a CPU there is none."""
    return torch.cuda.Stream(device) if GPU else None


def use(stream: torch.cuda.Stream | None) -> contextlib.AbstractContextManager:
    """Make a stream current."""
    return torch.cuda.stream(stream) if GPU else contextlib.nullcontext()


def here(device: torch.device) -> torch.cuda.Stream | None:
    """The current stream of a GPU."""
    return torch.cuda.current_stream(device) if GPU else None


def wait(stream: torch.cuda.Stream | None, other: torch.cuda.Stream | None) -> None:
    """Let a stream wait for the work of another; on a CPU nothing is late."""
    if GPU:
        stream.wait_stream(other)


# [streams]
@custom_op("graphs::scale", mutates_args=())
def scale(input: Tensor, factor: float) -> Tensor:
    """Right: the launch is on the current stream, which the capture records."""
    output = input.new_empty(input.shape)
    launch_scale(input, output, factor)
    return output


@custom_op("graphs::scale_aside", mutates_args=())
def scale_aside(input: Tensor, factor: float) -> Tensor:
    """Wrong: the capture knows nothing of this launch, so no replay repeats it."""
    output = input.new_empty(input.shape)
    with use(side_of(input.device)):
        launch_scale(input, output, factor)
    return output


@custom_op("graphs::scale_forked", mutates_args=())
def scale_forked(input: Tensor, factor: float) -> Tensor:
    """Right: events tie the other stream to the current one, before and after."""
    output = input.new_empty(input.shape)
    side = side_of(input.device)
    wait(side, here(input.device))  # fork: now it is captured too
    with use(side):
        launch_scale(input, output, factor)
    wait(here(input.device), side)  # join
    return output


# [/streams]


# [waits]
def _scale_to_one(input: Tensor) -> Tensor:
    """Divide by the largest element, which the CPU asks for."""
    return input / input.abs().max().item()


unsafe = (torch.Tag.cudagraph_unsafe,)
waits = custom_op("graphs::waits", _scale_to_one, mutates_args=())
tagged = custom_op("graphs::tagged", _scale_to_one, mutates_args=(), tags=unsafe)


@custom_op("graphs::scale_", mutates_args=("input",))
def scale_(input: Tensor, factor: float) -> None:
    """Write over the input, which must be contiguous."""
    launch_scale(input, input, factor)


# [/waits]


# ---- Random numbers


@triton.jit(do_not_specialize=["seed"])
def dropout_kernel(
    input, output, p, seed, count, IS_TENSOR: tl.constexpr, BLOCK: tl.constexpr
):
    """Zero each element with probability p; the seed is a number, or its address."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if IS_TENSOR:
        seed = tl.load(seed)
    x = tl.load(input + place, mask=place < count)
    kept = tl.rand(seed, place) >= p
    tl.store(output + place, tl.where(kept, x / (1 - p), 0.0), mask=place < count)


def launch_dropout(input: Tensor, output: Tensor, p: float, seed: int | Tensor) -> None:
    """Launch with a seed that is a number, or a tensor of one number."""
    with torch.cuda.device_of(input):
        dropout_kernel[blocks_of(input)](
            input.contiguous(), output, p, seed, input.numel(),
            IS_TENSOR=isinstance(seed, Tensor), BLOCK=BLOCK,
        )  # fmt: skip


# [seeds]
@custom_op("graphs::dropout_by_number", mutates_args=())
def dropout_by_number(input: Tensor, p: float, seed: int) -> Tensor:
    """Wrong in a graph: the launch keeps the number that it was captured with."""
    output = input.new_empty(input.shape)
    launch_dropout(input, output, p, seed)
    return output


@custom_op("graphs::dropout_by_tensor", mutates_args=())
def dropout_by_tensor(input: Tensor, p: float, seed: Tensor) -> Tensor:
    """Right: the kernel reads the seed from memory each time that it runs."""
    output = input.new_empty(input.shape)
    launch_dropout(input, output, p, seed)
    return output


def dropout(input: Tensor, p: float) -> Tensor:
    """Draw the seed on the device: PyTorch advances its generator at each replay."""
    seed = torch.randint(2**31 - 1, (1,), device=input.device)
    return dropout_by_tensor(input, p, seed)


# [/seeds]


# [register]
def _contiguous(input: Tensor, *rest) -> Tensor:
    return input.new_empty(input.shape)


for op in (scale, scale_aside, scale_forked, dropout_by_number, dropout_by_tensor):
    op.register_fake(_contiguous)
for op in (waits, tagged):
    op.register_fake(torch.empty_like)


def _save(ctx, inputs, output) -> None:
    _, ctx.p, seed = inputs
    ctx.save_for_backward(seed)


def _backward(ctx, grad: Tensor):
    (seed,) = ctx.saved_tensors
    return dropout_by_tensor(grad, ctx.p, seed), None, None


dropout_by_tensor.register_autograd(_backward, setup_context=_save)
# [/register]

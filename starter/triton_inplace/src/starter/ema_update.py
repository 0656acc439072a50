"""ema_update_ in Triton: formula, kernel, operator, and what it refuses."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from starter.forward_mode import refuse_tangents

# Elements of a program: 4 warps, 16 bytes of bf16 for each thread.
BLOCK = tl.constexpr(1024)
INTERPRETED = triton.knobs.runtime.interpret  # TRITON_INTERPRET=1: runs on the CPU


def ema_update_(state: Tensor, x: Tensor, decay: float) -> None:
    """Compute ``decay * state + (1 - decay) * x``, and write it over ``state``.

    No gradient passes through it: where one is needed, it raises.

    Args:
        state: Any strides with which no two elements share memory; fp16, bf16, fp32 or
            fp64. In half precision, a small step may be rounded away.
        x: Of the same shape, dtype and device. Nothing is broadcast. It may be
            ``state`` itself, but must not overlap it in another way.
        decay: A number from 0 to 1.

    Raises:
        RuntimeError: Shapes, dtypes or devices differ, memory overlaps, Triton does not
            run on the device, the dtype or ``decay`` is not one of these, an argument
            requires grad outside ``torch.no_grad()``, or ``state`` was made in
            inference mode and this is called outside it.
        NotImplementedError: In forward-mode differentiation.
    """
    torch.ops.starter.ema_update_(state, x, decay)


# [math] of one element: for the kernel, and in PyTorch's operators
@triton.jit
def ema_update_value(state, x, decay, take):
    """Compute one element of the new state; ``take`` is ``1 - decay``."""
    return decay * state + take * x


def composite(state: Tensor, x: Tensor, decay: float) -> Tensor:
    """Compute the same in PyTorch's operators, as a new tensor."""
    wide = torch.promote_types(state.dtype, torch.float32)
    return (decay * state.to(wide) + (1 - decay) * x.to(wide)).to(state.dtype)


# [/math]


@triton.jit
def load(place, mask):
    """Load elements in the type to compute in."""
    x = tl.load(place, mask=mask)
    return x if x.dtype == tl.float64 else x.to(tl.float32)


@triton.jit
def places(i, sizes, written, read):
    """Find element i in both tensors; the dimension of the smallest stride is first."""
    to, source = 0, 0
    for d in tl.static_range(len(sizes) - 1):
        to += i % sizes[d] * written[d]
        source += i % sizes[d] * read[d]
        i = i // sizes[d]
    last: tl.constexpr = len(sizes) - 1
    return to + i * written[last], source + i * read[last]


@triton.jit
def ema_update_kernel(
    state, x, count, sizes, written, read, decay: tl.float64, take: tl.float64
):
    """Write BLOCK elements. Without their type, Triton rounds numbers to fp32."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < count
    to, source = places(i, sizes, written, read)
    s, v = load(state + to, mask), load(x + source, mask)
    keep, new = tl.full([], decay, s.dtype), tl.full([], take, s.dtype)
    y = ema_update_value(s, v, keep, new)
    tl.store(state + to, y, mask=mask)  # converts to its dtype


def _expect(is_right, words: str) -> None:
    # While torch.compile traces sizes that depend on data, it is asked later.
    torch._check(is_right, lambda: f"starter::ema_update_: {words}")


def _check(state: Tensor, x: Tensor, decay: float) -> None:
    floating = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    shapes = f"expected x of shape {[*state.shape]}, but got {[*x.shape]}"
    _expect(x.dim() == state.dim(), shapes)
    for a, b in zip(x.shape, state.shape, strict=True):
        _expect(a == b, shapes)
    for is_right, what, it in (
        (x.dtype == state.dtype, f"x of dtype {state.dtype}", x.dtype),
        (x.device == state.device, f"x on {state.device}", x.device),
        (state.dtype in floating, "state of fp16, bf16, fp32 or fp64", state.dtype),
        (INTERPRETED or not state.is_cpu, "state on a GPU", state.device),
        (0 <= decay <= 1, "decay to be from 0 to 1", decay),
    ):
        _expect(is_right, f"expected {what}, but got {it}")


# Of each dimension: stride of the written tensor, size, stride of the one that is read.
Dims = list[tuple[int, int, int]]


def _dims(state: Tensor, x: Tensor) -> Dims:
    """List as few as describe both tensors, from the largest stride of the state."""
    each = zip(state.stride(), state.shape, x.stride(), strict=True)
    dims: Dims = []
    for to, size, source in sorted((d for d in each if d[1] != 1), reverse=True):
        if dims and (dims[-1][0], dims[-1][2]) == (size * to, size * source):
            size *= dims.pop()[1]  # one stride describes both dimensions
        dims.append((to, size, source))
    return dims


def _overlaps_itself(dims: Dims) -> bool:
    """Whether a step in a dimension stays within what smaller steps reach."""
    reach = 0
    for to, size, _ in reversed(dims):
        if to <= reach:
            return True
        reach += (size - 1) * to
    return False


def _has_distance(dims: Dims, distance: int) -> bool:
    """Whether two elements of the written tensor are this far apart."""
    if not dims:
        return distance == 0
    (to, size, _), *smaller = dims
    steps = abs(distance) // to
    return any(
        n < size and _has_distance(smaller, abs(distance) - n * to)
        for n in (steps, steps + 1)
    )


def _overlap(state: Tensor, x: Tensor, dims: Dims) -> bool:
    """Whether a write may change what another element still has to read."""
    distance = x.data_ptr() - state.data_ptr()
    written, read = (sum(d[i] * (d[1] - 1) for d in dims) for i in (0, 2))
    size = state.element_size()
    if distance > written * size or -distance > read * size:
        return False
    if any(to != source for to, _, source in dims):
        return True
    if distance == 0:  # the same tensor: each element reads its own
        return False
    return distance % size != 0 or _has_distance(dims, distance // size)


def _ema_update(state: Tensor, x: Tensor, decay: float) -> None:
    _check(state, x, decay)
    if state.numel() == 0:
        return
    dims = _dims(state, x) or [(1, 1, 1)]
    shared = f"several elements of state, of shape {[*state.shape]}, are the same"
    _expect(not _overlaps_itself(dims), f"{shared} memory; clone() it first")
    is_apart = not _overlap(state, x, dims)
    _expect(is_apart, "x and state overlap in memory; clone() x first")
    written, sizes, read = zip(*reversed(dims), strict=True)
    grid = (triton.cdiv(state.numel(), BLOCK.value),)
    arguments = state, x, state.numel(), sizes, written, read, decay, 1 - decay
    with torch.cuda.device_of(state):
        ema_update_kernel[grid](*arguments)


def _with_autograd(keys, state, x, decay):
    """Refuse what would have a gradient: PyTorch would silently pass on a wrong one."""
    refuse_tangents("starter::ema_update_", state, x)
    for name, tensor in (("state", state), ("x", x)):
        if torch.is_grad_enabled() and tensor.requires_grad:
            raise RuntimeError(
                f"starter::ema_update_: {name} requires grad, but no gradient passes "
                "through; call it under torch.no_grad(), or detach() the tensor"
            )
    _count_the_write(keys, state, x, decay)


def _count_the_write(keys, state, x, decay):
    """Write, and tell autograd, which may have saved the old value for backward."""
    if state.is_inference() and not torch.is_inference_mode_enabled():
        raise RuntimeError(
            "starter::ema_update_: state was made in inference mode and can be written "
            "to only there; clone() it first"
        )
    if state.is_neg() or isinstance(state.storage_offset(), torch.SymInt):
        # Views that PyTorch hands to no operator that returns nothing, and views whose
        # place torch.compile loses (pytorch#198068): copy_ writes to both.
        state.copy_(composite(state, x, decay))
        return
    with torch._C._AutoDispatchBelowADInplaceOrView():
        keys = keys & torch._C._after_ADInplaceOrView_keyset
        torch.ops.starter.ema_update_.default.redispatch(keys, state, x, decay)
    torch.autograd.graph.increment_version(state)


_library = torch.library.Library("starter", "FRAGMENT")
_library.define("ema_update_(Tensor(a!) state, Tensor x, float decay) -> ()")
_library.impl("ema_update_", _ema_update, "CompositeExplicitAutograd")
# The fake kernel, for torch.compile: nothing to return, so the checks alone.
torch.library.register_fake("starter::ema_update_", _check, lib=_library)
# Inference mode has no Autograd, but counts writes too.
_library.impl("ema_update_", _with_autograd, "Autograd", with_keyset=True)
_library.impl("ema_update_", _count_the_write, "ADInplaceOrView", with_keyset=True)

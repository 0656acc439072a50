"""Matrix products in Triton: every kernel has one idea more than the one before it.

All of them compute ``a @ b`` of two contiguous matrices, ``a`` [M, K] and ``b`` [K, N],
of fewer than 2**31 elements each. Only ``fused`` does more: bias and GELU.
"""

from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

INTERPRETED = triton.knobs.runtime.interpret


# [naive]
@triton.jit
def naive_kernel(
    a, b, c, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program computes one tile of c, and walks along K."""
    tile, across = tl.program_id(0), tl.cdiv(N, BLOCK_N)
    m = tile // across * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile % across * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a_inside = (m[:, None] < M) & (k[None, :] < K)
        b_inside = (k[:, None] < K) & (n[None, :] < N)
        a_tile = tl.load(a + m[:, None] * K + k[None, :], a_inside, 0.0)
        b_tile = tl.load(b + k[:, None] * N + n[None, :], b_inside, 0.0)
        total = tl.dot(a_tile, b_tile, total)
    inside = (m[:, None] < M) & (n[None, :] < N)
    result = total.to(c.dtype.element_ty)
    tl.store(c + m[:, None] * N + n[None, :], result, inside)


# [/naive]


# [order]
@triton.jit
def place_of(tile, down, across, GROUP: tl.constexpr):
    """Row and column of a tile: GROUP tiles downwards, then one column on."""
    group = tile // (GROUP * across)
    height = min(GROUP, down - group * GROUP)  # the last group may be lower
    inside = tile % (GROUP * across)
    return group * GROUP + inside % height, inside // height


# [/order]


@triton.jit
def grouped_kernel(
    a, b, c, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """Programs that run at the same time share rows of a and columns of b."""
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    row, column = place_of(tl.program_id(0), down, across, GROUP)
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a_inside = (m[:, None] < M) & (k[None, :] < K)
        b_inside = (k[:, None] < K) & (n[None, :] < N)
        a_tile = tl.load(a + m[:, None] * K + k[None, :], a_inside, 0.0)
        b_tile = tl.load(b + k[:, None] * N + n[None, :], b_inside, 0.0)
        total = tl.dot(a_tile, b_tile, total)
    inside = (m[:, None] < M) & (n[None, :] < N)
    result = total.to(c.dtype.element_ty)
    tl.store(c + m[:, None] * N + n[None, :], result, inside)


# [configs]
# The interpreter has no device to time on, so there it gets one config.
CONFIGS = [
    triton.Config(
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 64, "GROUP": 8},
        num_warps=warps,
        num_stages=stages,
    )
    for m, n, warps, stages in (
        (128, 64, 4, 4),
        (128, 128, 8, 4),
        (128, 256, 8, 3),
        (128, 256, 8, 4),
    )
]
tuned_kernel = triton.autotune(
    CONFIGS[:1] if INTERPRETED else CONFIGS, key=["M", "N", "K"]
)(grouped_kernel)
# [/configs]


@triton.jit
def persistent_kernel(
    a, b, c, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """As many programs as multiprocessors; each computes one tile after another."""
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    programs = tl.num_programs(0)
    for tile in range(tl.program_id(0), down * across, programs):
        row, column = place_of(tile, down, across, GROUP)
        m = row * BLOCK_M + tl.arange(0, BLOCK_M)
        n = column * BLOCK_N + tl.arange(0, BLOCK_N)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, K, BLOCK_K):
            k = start + tl.arange(0, BLOCK_K)
            a_inside = (m[:, None] < M) & (k[None, :] < K)
            b_inside = (k[:, None] < K) & (n[None, :] < N)
            a_tile = tl.load(a + m[:, None] * K + k[None, :], a_inside, 0.0)
            b_tile = tl.load(b + k[:, None] * N + n[None, :], b_inside, 0.0)
            total = tl.dot(a_tile, b_tile, total)
        inside = (m[:, None] < M) & (n[None, :] < N)
        result = total.to(c.dtype.element_ty)
        tl.store(c + m[:, None] * N + n[None, :], result, inside)


# [descriptors]
@triton.jit
def descriptor_kernel(
    a, b, bias, c, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, GELU: tl.constexpr,
):  # fmt: skip
    """Descriptors know shape and strides: no pointers, no masks."""
    a_tiles = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b_tiles = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BLOCK_K, BLOCK_N])
    HALF: tl.constexpr = BLOCK_N // 2
    c_tiles = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BLOCK_M, HALF])
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    programs = tl.num_programs(0)
    # One loop out of two: the loads of the next tile begin before this one is stored.
    for tile in tl.range(tl.program_id(0), down * across, programs, flatten=True):
        row, column = place_of(tile, down, across, GROUP)
        m, n = row * BLOCK_M, column * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            total = tl.dot(a_tiles.load([m, k]), b_tiles.load([k, n]), total)
        # Half a tile at a time: it is stored from shared memory, beside the stages.
        halves = tl.permute(tl.reshape(total, (BLOCK_M, 2, HALF)), (0, 2, 1))
        left, right = tl.split(halves)
        if GELU:
            left = gelu_of(left, bias, n + tl.arange(0, HALF), N)
            right = gelu_of(right, bias, n + HALF + tl.arange(0, HALF), N)
        c_tiles.store([m, n], left.to(c.dtype.element_ty))
        c_tiles.store([m, n + HALF], right.to(c.dtype.element_ty))


# [/descriptors]


# [epilogue]
@triton.jit
def gelu_of(total, bias, n, N):
    """GELU(total + bias), while the tile is still in registers."""
    total += tl.load(bias + n, n < N, 0.0).to(tl.float32)[None, :]
    return 0.5 * total * (1 + tl.erf(total * 0.7071067811865476))


# [/epilogue]


def launch(kernel, a: Tensor, b: Tensor, *others: Tensor, programs=None, **options):
    """Allocate c, count its tiles, and start a program for each, or `programs`."""
    (M, K), N = a.shape, b.shape[1]
    c = a.new_empty(M, N)

    def grid(config):
        down = triton.cdiv(M, config["BLOCK_M"])
        tiles = down * triton.cdiv(N, config["BLOCK_N"])
        return (min(tiles, programs or tiles),)

    kernel[grid](a, b, *others, c, M, N, K, **options)
    return c


# How many programs fill the GPU: one on each multiprocessor.
PROGRAMS = 4
if not INTERPRETED:
    PROGRAMS = torch.cuda.get_device_properties("cuda").multi_processor_count


def descriptors(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """With a bias, GELU(a @ b + bias)."""
    triton.set_allocator(room_for_descriptors)
    options = LARGE | {"GROUP": 8, "num_stages": 3, "GELU": bias is not None}
    return launch(descriptor_kernel, a, b, bias, programs=PROGRAMS, **options)


def room_for_descriptors(size: int, alignment: int, stream: int | None) -> Tensor:
    """The kernel writes its descriptors to memory that Triton asks for here."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


SMALL = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_stages": 1}
LARGE = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8}
STEPS = {
    "naive": partial(launch, naive_kernel, **SMALL),
    "large tiles": partial(launch, naive_kernel, **LARGE, num_stages=1),
    "in groups": partial(launch, grouped_kernel, **LARGE, GROUP=8, num_stages=1),
    "in 3 stages": partial(launch, grouped_kernel, **LARGE, GROUP=8, num_stages=3),
    "tuned": partial(launch, tuned_kernel),
    "persistent": partial(
        launch, persistent_kernel, **LARGE, GROUP=8, num_stages=3, programs=PROGRAMS
    ),
    "descriptors": descriptors,
}

"""Time attention, forward and backward, beside SDPA, FlexAttention and eager.

Several processes compile everything first, and leave it in the caches on disk. Without
a GPU it runs the same calls interpreted, on small tensors, and the numbers say nothing.
"""

import itertools
import os
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context

# Each of the processes would start a compiler for each core.
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import clock
import torch._functorch.config
import torch.nn.functional as F
import triton
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import opbook.triton as ops

BATCH, HEADS = 4, 32
DIMS, LENGTHS = (64, 128), (1024, 4096, 16384)
if not clock.GPU:
    BATCH, HEADS, DIMS, LENGTHS = 1, 2, (16,), (32, 128)
MOST_EAGER = 4096  # its scores of 16384 positions are half of the GPU's memory
WARM_UP, ROUNDS = 2, 9
PRODUCTS = {"forward": 2, "backward": 5}
NAMES = ("opbook", "flash", "cudnn", "flex", "eager")


def operands(dim: int, length: int) -> list[Tensor]:
    """Query, key and value; leaves."""
    shape = (BATCH, HEADS, length, dim)
    options = {"device": clock.DEVICE, "dtype": torch.bfloat16, "requires_grad": True}
    return [torch.randn(shape, **options) for _ in range(3)]


def sdpa(backend: SDPBackend, causal: bool, *tensors: Tensor) -> Tensor:
    """One backend of SDPA."""
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(*tensors, is_causal=causal)


@cache
def block_mask(length: int):
    """What FlexAttention calls a causal mask."""
    visible = lambda batch, head, row, column: column <= row  # noqa: E731
    return create_block_mask(visible, None, None, length, length, device=clock.DEVICE)


def flex(causal: bool, *tensors: Tensor) -> Tensor:
    """FlexAttention, compiled with its defaults."""
    mask = block_mask(tensors[0].shape[2]) if causal else None
    return compiled_flex()(*tensors, block_mask=mask)


@cache
def compiled_flex() -> Callable:
    """One function for all calls: it keeps what was compiled for each length."""
    return torch.compile(flex_attention, dynamic=False, fullgraph=True)


def eager(causal: bool, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The three operators, and a mask."""
    scores = query @ key.mT * query.shape[-1] ** -0.5
    if causal:
        ones = torch.ones(scores.shape[-2:], dtype=torch.bool, device=clock.DEVICE)
        scores = scores.masked_fill(~ones.tril(), -torch.inf)
    return scores.softmax(-1) @ value


def contenders(causal: bool, length: int) -> dict[str, Callable]:
    """A function of query, key and value for each name."""
    found = {
        "opbook": partial(ops.attention, causal=causal),
        "flash": partial(sdpa, SDPBackend.FLASH_ATTENTION, causal),
        "cudnn": partial(sdpa, SDPBackend.CUDNN_ATTENTION, causal),
        "flex": partial(flex, causal),
    }
    return found | ({"eager": partial(eager, causal)} if length <= MOST_EAGER else {})


def call_once(name: str, dim: int, causal: bool, length: int) -> str:
    """Compile a contender's forward and backward; return what is wrong."""
    tensors = operands(dim, length)
    try:
        output = contenders(causal, length)[name](*tensors)
        torch.autograd.grad(output, tensors, torch.ones_like(output))
        if clock.GPU:
            torch.cuda.synchronize()
    except RuntimeError as error:
        return f"{name}: {str(error).splitlines()[0][:90]}"
    return ""


def compile_all() -> None:
    """Fill the caches of Triton and Inductor, in processes side by side."""
    cases = list(itertools.product(DIMS, (False, True)))
    jobs = [("opbook", *case, LENGTHS[0]) for case in cases]
    jobs += [("flex", *case, length) for case in cases for length in LENGTHS]
    with ProcessPoolExecutor(len(jobs), mp_context=get_context("spawn")) as pool:
        for problem in set(pool.map(call_once, *zip(*jobs, strict=True))) - {""}:
            print(problem)


def check(outputs: dict[str, Tensor], tensors: list[Tensor], grad: Tensor) -> None:
    """A kernel that is fast and wrong is of no use."""
    ours, theirs = (
        (outputs[name], *torch.autograd.grad(outputs[name], tensors, grad, True))
        for name in ("opbook", "flash")
    )
    for actual, expected in zip(ours, theirs, strict=True):
        error = (actual.float() - expected.float()).abs().max()
        if not error <= 2**-6 * expected.abs().max():
            raise ValueError(f"differs from FlashAttention by {error}")


def medians(calls: dict[str, Callable]) -> dict[str, float]:
    """Median microseconds of each call; the calls take turns."""
    times = {name: [] for name in calls}
    for _ in range(WARM_UP + ROUNDS):
        for name, call in calls.items():
            times[name].append(clock.one_call(call))
            clock.results.clear()
    return {name: statistics.median(t[WARM_UP:]) for name, t in times.items()}


def measure(dim: int, causal: bool, length: int) -> dict[str, dict[str, float]]:
    """TFLOP/s of each contender, forward and backward."""
    tensors = operands(dim, length)
    grad = torch.randn_like(tensors[0])
    functions, outputs = {}, {}
    for name, function in contenders(causal, length).items():
        if not call_once(name, dim, causal, length):
            functions[name] = partial(function, *tensors)
            outputs[name] = functions[name]()
    check(outputs, tensors, grad)
    backward = {
        name: partial(torch.autograd.grad, output, tensors, grad, retain_graph=True)
        for name, output in outputs.items()
    }
    with torch.no_grad():
        times = {"forward": medians(functions)}
    times["backward"] = medians(backward)
    product = 2 * BATCH * HEADS * length**2 * dim / (2 if causal else 1)
    return {
        way: {name: PRODUCTS[way] * product / us / 1e6 for name, us in found.items()}
        for way, found in times.items()
    }


def main() -> None:
    """Print a table for forward and one for backward."""
    # Each gradient is taken many times from one graph, which must keep its tensors.
    torch._functorch.config.donated_buffer = False
    torch._dynamo.config.recompile_limit = 64  # FlexAttention is compiled for each case
    if clock.GPU:
        compile_all()
    cudnn = torch.backends.cudnn.version()
    print(f"{clock.versions()}, Triton {triton.__version__}, cuDNN {cudnn}")
    print(f"TFLOP/s, batch {BATCH}, {HEADS} heads; median of {ROUNDS}, cold cache")
    cases = list(itertools.product(DIMS, (False, True), LENGTHS))
    found = {case: measure(*case) for case in cases}
    for way in PRODUCTS:
        heads = "".join(f"{name:>9}" for name in NAMES)
        print(f"\n{way:8} dim  causal  length{heads}  of the fastest")
        for (dim, causal, length), rates in found.items():
            rates = rates[way]
            row = "".join(
                f"{rates[name]:9.0f}" if name in rates else f"{'-':>9}"
                for name in NAMES
            )
            share = rates["opbook"] / max(rates.values())
            yes = "yes" if causal else "no"
            print(f"{'':8}{dim:4}  {yes:>6}  {length:6}{row}  {share:13.0%}")


if __name__ == "__main__":
    main()

"""Dropout whose seed is a tensor, so that a CUDA graph can change it."""

import os

import torch
from torch import Tensor

device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import triton
import triton.language as tl


# [operator]
@triton.jit
def dropout_kernel(input, output, p, seed, count, BLOCK: tl.constexpr):
    """As in the package, but the seed is read from memory when the kernel runs."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    x = tl.load(input + place, mask=inside).to(tl.float32)
    kept = tl.rand(tl.load(seed), place) >= p
    y = tl.where(kept, x / (1 - p), 0.0).to(output.dtype.element_ty)
    tl.store(output + place, y, mask=inside)


@torch.library.custom_op("seeds::dropout", mutates_args=())
def dropout(input: Tensor, p: float, seed: Tensor) -> Tensor:
    """Zero elements at random; `seed` is an int64 tensor of one element."""
    input = input.contiguous()
    output, count = torch.empty_like(input), input.numel()
    if count > 0:
        dropout_kernel[(triton.cdiv(count, 1024),)](
            input, output, p, seed, count, BLOCK=1024
        )
    return output


@dropout.register_fake
def _(input, p, seed):
    return torch.empty_like(input, memory_format=torch.contiguous_format)


def save_a_copy(ctx, inputs, output) -> None:
    """Keep the seed of this call: the tensor may hold another one by backward."""
    _, ctx.p, seed = inputs
    ctx.save_for_backward(seed.clone())


def backward(ctx, grad):
    """Drop the elements of the gradient that forward dropped."""
    return dropout(grad, ctx.p, *ctx.saved_tensors), None, None


dropout.register_autograd(backward, setup_context=save_a_copy)
# [/operator]


def check() -> None:
    """Backward drops what forward dropped, even if the seed has changed."""
    x = torch.ones(4096, device=device, requires_grad=True)
    seed = torch.tensor([7], device=device)
    y = dropout(x, 0.5, seed)
    seed.add_(1)
    y.sum().backward()
    print("dropped in both:", torch.equal(y == 0, x.grad == 0))
    torch.library.opcheck(dropout, (x, 0.5, seed))


def drawn_by_a_graph(call) -> int:
    """How many masks five replays of one graph draw."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()  # compiles, which a capture cannot
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = call()
    masks = set()
    for _ in range(5):
        graph.replay()
        masks.add(tuple((y != 0).tolist()))
    return len(masks)


def replays() -> None:
    """Compare a seed that is a number with one that is a tensor."""
    from opbook.triton import dropout as with_a_number

    x, seed = torch.ones(4096, device="cuda"), torch.tensor([7], device="cuda")

    def with_a_tensor() -> Tensor:
        seed.add_(1)  # captured too: each replay draws with the next seed
        return dropout(x, 0.5, seed)

    numbers = drawn_by_a_graph(lambda: with_a_number(x, 0.5, 7))
    print("masks in 5 replays, seed a number:", numbers)
    print("masks in 5 replays, seed a tensor:", drawn_by_a_graph(with_a_tensor))


if __name__ == "__main__":
    check()
    if device == "cuda":
        replays()

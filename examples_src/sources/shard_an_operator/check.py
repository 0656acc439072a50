"""Shard the operators over processes, and compare with one process.

    python3 examples_src/sources/shard_an_operator/check.py NAME...

runs missing, norm, linear, fsdp, gathered or wrong, with a process for each GPU and
NCCL, or with two processes and gloo where there is no GPU.
"""

import os
import socket
import sys

import rules
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformer
from operators import patch, rms_norm
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

CUDA = torch.cuda.is_available() and torch.distributed.is_nccl_available()
DEVICE = "cuda" if CUDA else "cpu"
PROCESSES = torch.cuda.device_count() if CUDA else 2
EPS = 1e-6


def say(*words: object) -> None:
    """Print in one process."""
    if dist.get_rank() == 0:
        print(*words, flush=True)


def same(found: Tensor, expected: Tensor) -> str:
    """Raise unless two tensors agree but for roundings."""
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    return "equal"


def inputs() -> tuple[Tensor, Tensor]:
    """The same rows and weight in each process; 7 rows leave processes unlike."""
    torch.manual_seed(0)
    return torch.randn(7, 16, device=DEVICE), torch.randn(16, device=DEVICE)


def placed(mesh: DeviceMesh, x: Tensor, dim: int, weight: Tensor) -> tuple:
    """Shard a tensor, and replicate the weight."""
    return (
        distribute_tensor(x, mesh, [Shard(dim)]),
        distribute_tensor(weight, mesh, [Replicate()]),
    )


# [norm]
def missing(mesh: DeviceMesh) -> None:
    """Call without a rule."""
    x, weight = inputs()
    try:
        rms_norm(*placed(mesh, x, 0, weight), EPS)
    except NotImplementedError as error:
        say("no rule:", error)


def norm(mesh: DeviceMesh) -> None:
    """Compare result and gradients with those of one process."""
    rules.register_norm()
    x, weight = (tensor.requires_grad_() for tensor in inputs())
    expected = rms_norm(x, weight, EPS)
    grads = torch.autograd.grad(expected.square().sum(), (x, weight))
    for dim, name in enumerate(("rows", "columns")):
        sharded = placed(mesh, x.detach(), dim, weight.detach())
        sharded = [tensor.requires_grad_() for tensor in sharded]
        y = rms_norm(*sharded, EPS)
        found = torch.autograd.grad(y.square().sum(), sharded)
        results = [
            same(one.full_tensor(), other)
            for one, other in zip((y, *found), (expected, *grads), strict=True)
        ]
        say(f"{name:8} result {y.placements}, weight's gradient {found[1].placements}")
        say("         result and gradients:", *results)


# [/norm]


def wrong(mesh: DeviceMesh) -> None:
    """Count what a rule that cuts rows computes."""
    rules.register_wrong()
    x, weight = inputs()
    y = rms_norm(*placed(mesh, x, 1, weight), EPS).full_tensor()
    off = ~torch.isclose(y, rms_norm(x, weight, EPS), rtol=1e-4)
    say(f"cut rows: {off.sum().item()} of {off.numel()} elements wrong")


# [linear]
def linear(mesh: DeviceMesh) -> None:
    """Shard an MLP by features: one sum over the processes at its end."""
    rules.register_linear()
    torch.manual_seed(0)
    mlp = patch(transformer.MLP(16)).to(DEVICE)
    x = torch.randn(4, 6, 16, device=DEVICE)
    expected = mlp(x)
    expected.square().sum().backward()
    grads = [p.grad.clone() for p in mlp.parameters()]
    mlp.zero_grad()
    plan = {
        "": PrepareModuleInput(
            input_layouts=Replicate(), desired_input_layouts=Replicate()
        ),
        "up": ColwiseParallel(),
        "down": RowwiseParallel(),
    }
    parallelize_module(mlp, mesh, plan)
    y = mlp(x)
    y.square().sum().backward()
    results = [same(y, expected)]
    for parameter, grad in zip(mlp.parameters(), grads, strict=True):
        results.append(same(parameter.grad.full_tensor(), grad))
    part = mlp.up.weight.to_local().shape
    say(f"tensor parallel: first layer {list(part)} a process;", *results)


# [/linear]


# [fsdp]
def fsdp(mesh: DeviceMesh) -> None:
    """Shard the parameters of the patched transformer, and train it."""
    torch.manual_seed(0)
    whole = patch(transformer.Transformer(64, 32, 4, 2)).to(DEVICE)
    torch.manual_seed(0)
    sharded = patch(transformer.Transformer(64, 32, 4, 2)).to(DEVICE)
    for block in sharded.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    count = dist.get_world_size()
    data = transformer.batches(64, 4 * count, 16, DEVICE)
    batches = [next(data) for _ in range(5)]
    mine = [batch.chunk(count)[dist.get_rank()] for batch in batches]
    expected = torch.tensor(transformer.train(whole, batches))
    losses = torch.tensor(transformer.train(sharded, mine), device=DEVICE)
    dist.all_reduce(losses)
    say("FSDP2: 5 losses", same(losses.cpu() / count, expected))


# [/fsdp]


# [gathered]
@torch.library.custom_op("sharded::norm_of_cut_rows", mutates_args=())
def norm_of_cut_rows(input: Tensor, weight: Tensor, eps: float, group: str) -> Tensor:
    """RMSNorm of rows that are cut over the processes of a group."""
    squares = input.float().square().sum(-1, keepdim=True)
    process_group = torch.distributed.distributed_c10d._resolve_process_group(group)
    dist.all_reduce(squares, group=process_group)
    columns = input.shape[-1] * process_group.size()
    scale = torch.rsqrt(squares / columns + eps)
    return (input * scale * weight).to(input.dtype)


@norm_of_cut_rows.register_fake
def _(input, weight, eps, group):
    return torch.empty_like(input)


def gathered(mesh: DeviceMesh) -> None:
    """Call the operator that sums over the processes itself, also when compiled."""
    x, weight = inputs()
    count, rank = dist.get_world_size(), dist.get_rank()
    mine, part = x.chunk(count, 1)[rank], weight.chunk(count)[rank]
    name = mesh.get_group().group_name
    expected = rms_norm(x, weight, EPS).chunk(count, 1)[rank]

    def call(mine: Tensor, part: Tensor) -> Tensor:
        return norm_of_cut_rows(mine, part, EPS, name)

    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    for function in (call, compiled):
        result = same(function(mine, part), expected)
    say("a collective inside: eager and compiled", result)


# [/gathered]


def process(rank: int, port: int, names: list[str]) -> None:
    """Run the checks in one of the processes."""
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    if CUDA:
        torch.cuda.set_device(rank)
    backend = "nccl" if CUDA else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=PROCESSES)
    mesh = init_device_mesh(DEVICE, (PROCESSES,))
    say(f"{PROCESSES} processes, {backend}")
    for name in names:
        globals()[name](mesh)
    dist.destroy_process_group()


if __name__ == "__main__":
    names = sys.argv[1:] or ["missing", "norm", "linear", "fsdp", "gathered"]
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    mp.spawn(process, (port, names), nprocs=PROCESSES)

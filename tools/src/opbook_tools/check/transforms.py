"""What torch.func and torch.compile make of an operator."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from opbook_tools.check import compare
from opbook_tools.check.case import Case, Outcome, quiet
from opbook_tools.check.errors import Found, Refused, Skipped, line
from opbook_tools.check.registry import checks

SCALES = (1.0, 0.75, 0.5)


@checks("vmap")
def _(case: Case) -> None:
    case.once_known()
    if case.facts.written:
        raise Skipped("it writes to its arguments")
    places = case.leaves.floating()
    if not places:
        raise Skipped("it takes no tensor to map over")
    refusal, called = None, False
    for mapped, dim in _ways(places):
        try:
            _one_way(case, mapped, dim)
            called = True
        except Refused as why:
            refusal = refusal or why
    if refusal and not called:
        raise refusal


def _ways(places: list[int]) -> Iterator[tuple[list[int], int]]:
    yield places, 0
    yield places, -1
    if len(places) > 1:
        for n in places:
            yield [n], 0


def _one_way(case: Case, places: list[int], dim: int) -> None:
    """Map over a new dimension of some arguments, and compare with a loop."""
    rows = [
        case.leaves.copies().mapped(lambda x, s=s: (x.detach() * s).to(x.dtype), places)
        for s in SCALES
    ]
    expected = [case.call(each.copies()).kept() for each in rows]
    stacked = {n: torch.stack([r.values[n] for r in rows], dim) for n in places}

    def one(*mapped: Tensor) -> Any:
        given = dict(zip(stacked, mapped, strict=True))
        return case.leaves.copies().replaced(given).call(case.operator)

    try:
        result = torch.vmap(one, in_dims=dim)(*stacked.values())
    except Exception as error:
        raise Refused(line(error)) from error
    names = " and ".join(case.leaves.names[n] for n in places)
    for row, (leaves, right) in enumerate(zip(rows, expected, strict=True)):
        part = _pytree.tree_map(
            lambda x, r=row: x[r] if isinstance(x, Tensor) else x, result
        )
        actual = Outcome.of(part, leaves)
        noise = case.noise_of(leaves, right)
        what = f"row {row} of vmap over {names}, dimension {dim}"
        # A product of batches is summed in another order than one of matrices.
        case.compare(actual, what, right, noise, eps=case.eps, few=64)


@checks("torch.compile")
def _(case: Case) -> None:
    case.once_known()
    prepare()
    dense = [n for n in case.leaves.floating() if n not in case.facts.written]
    wanted = dense if _has_gradient(case, dense) else []
    # Where only PyTorch's own operators are called, tracing is what may go wrong, and
    # once is enough.
    for dynamic in (False, True) if case.facts.calls else (True,):
        # The gradient is part of what is compiled with symbolic sizes.
        required = wanted if dynamic else []
        expected, gradients = _with_gradient(case, case.operator, required)
        compiled = _compiled(case, dynamic)
        what = f"compiled, dynamic={dynamic}"
        with _fresh():
            actual, got = _with_gradient(case, compiled, required)
        case.compare(actual, what, expected, case.noise, eps=case.eps)
        for n, a, e in zip(required, got, gradients, strict=True):
            if text := compare.difference(a, e, eps=case.eps, few=256):
                space = "" if text.startswith("[") else " "
                raise Found(
                    f"{what}: the gradient by {case.leaves.names[n]}{space}{text}"
                )


def _has_gradient(case: Case, places: list[int]) -> bool:
    leaves = case.leaves.copies()
    leaves = leaves.mapped(lambda x: x.requires_grad_(), places)
    try:
        results = [x for x in case.call(leaves).tensors() if x.requires_grad]
        torch.autograd.grad(
            [x.sum().abs() for x in results],
            [leaves.values[n] for n in places],
            allow_unused=True,
        )
    except Exception:
        return False
    return bool(results)


def _with_gradient(
    case: Case, operator: Callable, places: list[int]
) -> tuple[Outcome, list[Tensor]]:
    leaves = case.leaves.copies()
    leaves = leaves.mapped(lambda x: x.requires_grad_(), places)
    outcome = case.call(leaves, operator)
    if not places:
        return outcome.kept(), []
    results = [x for x in outcome.tensors() if x.requires_grad]
    inputs = [leaves.values[n] for n in places]
    options = {"allow_unused": True, "materialize_grads": True}
    weights = [torch.linspace(-1, 1, x.numel()).view(x.shape).to(x) for x in results]
    try:
        gradients = torch.autograd.grad(results, inputs, weights, **options)
    except Exception as error:
        raise Refused(line(error)) from error
    return outcome.kept(), list(gradients)


def _compiled(case: Case, dynamic: bool) -> Callable:
    def call(*args: Any, **kwargs: Any) -> Any:
        return case.operator(*args, **kwargs)

    torch._dynamo.reset()
    # Of PyTorch's own operators Inductor would check itself, and call a C++ compiler.
    backend = "inductor" if case.facts.calls else "aot_eager"
    return torch.compile(call, dynamic=dynamic, fullgraph=True, backend=backend)


class _Everything:
    """The names of the operators that Inductor calls instead of generating code."""

    def __contains__(self, name: str) -> bool:
        return True


@contextlib.contextmanager
def _fresh() -> Iterator[None]:
    """Inductor with nothing cached, and PyTorch's own operators called, not generated.

    A C++ compiler would take seconds for each of those, and none of them is checked.
    """
    from torch._inductor import config, graph, lowering

    known = dict(lowering.lowerings), graph.FALLBACK_ALLOW_LIST
    for key in known[0]:
        if isinstance(key, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            del lowering.lowerings[key]  # what is left calculates with sizes
    graph.FALLBACK_ALLOW_LIST = _Everything()
    options = {"force_disable_caches": True, "compile_threads": 1}
    logging.getLogger("torch._inductor").setLevel(logging.CRITICAL)  # errors are raised
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            config.patch(options),
            _environment("TORCHINDUCTOR_CACHE_DIR", folder),
        ):
            yield
    finally:
        lowering.lowerings.update(known[0])
        graph.FALLBACK_ALLOW_LIST = known[1]


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    was = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if was is not None:
            os.environ[name] = was


@functools.cache
def prepare() -> None:
    """Import what compiles, once, before the process is forked for each check."""
    import torch._inductor.compile_fx

    with quiet(), _fresh(), contextlib.suppress(Exception):
        torch.compile(lambda x: x + 1)(torch.ones(2))
    torch._dynamo.reset()

"""What torch.func and torch.compile make of an operator."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils import _pytree

from opbook_tools.check import compare
from opbook_tools.check.case import Case, Outcome, checks, gradients, quiet
from opbook_tools.check.errors import Refused, Skipped, asked, unless_all_refuse

SCALES = (1.0, 0.75, 0.5)


@checks("vmap")
def _(case: Case) -> None:
    case.once_known(has_order=True)
    if case.facts.written:
        raise Skipped("it writes to its arguments")
    places = case.leaves.floating()
    if not places:
        raise Skipped("it takes no tensor to map over")
    ways = [(places, 0), (places, -1), *(([n], 0) for n in places if len(places) > 1)]
    unless_all_refuse(lambda way=way: _one_way(case, *way) for way in ways)


def _one_way(case: Case, places: list[int], dim: int) -> None:
    """Map over a new dimension of some arguments, and compare with a loop."""
    rows = [case.leaves.scaled(s, places) for s in SCALES]
    expected = [case.call(each.copies()).kept() for each in rows]
    stacked = {n: torch.stack([r.values[n] for r in rows], dim) for n in places}

    def one(*mapped: Tensor) -> Any:
        given = dict(zip(stacked, mapped, strict=True))
        return case.leaves.copies().replaced(given).call(case.operator)

    result = asked(torch.vmap(one, in_dims=dim), *stacked.values())
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
        expected, usual, _ = _with_gradient(case, case.operator, required)
        compiled = _compiled(case, dynamic)
        what = f"compiled, dynamic={dynamic}"
        with _fresh():
            actual, got, _ = _with_gradient(case, compiled, required)
        case.compare(actual, what, expected, case.noise, eps=case.eps)
        for n, a, e in zip(required, got, usual, strict=True):
            name = f"the gradient by {case.leaves.names[n]}"
            compare.demand(a, e, what, name, eps=case.eps, few=256)


def _has_gradient(case: Case, places: list[int]) -> bool:
    with contextlib.suppress(Refused):
        return _with_gradient(case, case.operator, places)[2]
    return False


def _with_gradient(
    case: Case, operator: Callable, places: list[int]
) -> tuple[Outcome, list[Tensor], bool]:
    leaves = case.leaves.copies()
    leaves = leaves.mapped(lambda x: x.requires_grad_(), places)
    outcome = case.call(leaves, operator)
    results, inputs = outcome.tensors(), [leaves.values[n] for n in places]
    weights = [torch.linspace(-1, 1, x.numel()).view(x.shape).to(x) for x in results]
    return outcome.kept(), *gradients(results, weights, inputs)


def _compiled(case: Case, dynamic: bool) -> Callable:
    def call(*args: Any, **kwargs: Any) -> Any:
        return case.operator(*args, **kwargs)

    torch._dynamo.reset()
    # Of PyTorch's own operators Inductor would check itself, and call a C++ compiler.
    backend = "inductor" if case.facts.calls else "aot_eager"
    return torch.compile(call, dynamic=dynamic, fullgraph=True, backend=backend)


@contextlib.contextmanager
def _fresh() -> Iterator[None]:
    """Inductor with nothing cached, and PyTorch's own operators called, not generated.

    A C++ compiler would take seconds for each of those, and none of them is checked.
    """
    from torch._inductor import config

    options = {
        "force_disable_caches": True,
        "compile_threads": 1,
        "fallback_by_default": True,
    }
    logging.getLogger("torch._inductor").setLevel(logging.CRITICAL)  # errors are raised
    with (
        tempfile.TemporaryDirectory() as folder,
        config.patch(options),
        mock.patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=folder),
    ):
        yield


@functools.cache
def prepare() -> None:
    """Import what compiles, once, before the process is forked for each check."""
    import torch._inductor.compile_fx

    with quiet(), _fresh(), contextlib.suppress(Exception):
        torch.compile(lambda x: x + 1)(torch.ones(2))
    torch._dynamo.reset()

"""What an operator's registration promises, beside what a call does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.testing._internal.optests import autograd_registration_check
from torch.utils import _pytree

from opbook_tools.check import values
from opbook_tools.check.case import Case, annotated, overload
from opbook_tools.check.errors import Found, Refused, Skipped, line
from opbook_tools.check.registry import checks
from opbook_tools.check.values import Leaves, short
from opbook_tools.sample import Sample


@checks("schema")
def _(case: Case) -> None:
    for func, args, kwargs in case.registered():
        _keeps_its_schema(case, func, Leaves.of(Sample(args, kwargs)))


def _keeps_its_schema(case: Case, func: Any, leaves: Leaves) -> None:
    writable, aliased = annotated(func, leaves)
    before = leaves.copies()
    outcome = case.call(leaves, func)
    for n in leaves.tensors():
        was, now = before.values[n], leaves.values[n]
        same = torch.equal(values.memory(was), values.memory(now))
        if not same and n not in writable:
            raise Found(
                f"{func}: {leaves.names[n]} is written, and the schema has no (a!)"
            )
    memory = {values.storage_of(leaves.values[n]): n for n in leaves.tensors()}
    memory.pop(0, None)
    for x in outcome.tensors():
        n = memory.get(values.storage_of(x)) if values.is_plain(x) else None
        if n is not None and n not in aliased:
            name = leaves.names[n]
            raise Found(
                f"{func}: a result is the memory of {name}, and the schema has no (a)"
            )


@checks("autograd key")
def _(case: Case) -> None:
    named = overload(case.operator)
    [(func, args, kwargs), *others] = case.registered()
    if named is None and others:
        raise Skipped("it calls several operators, some of which may need no gradient")
    for x in _pytree.tree_leaves((args, kwargs)):
        if isinstance(x, Tensor) and values.is_arithmetic(x):
            x.requires_grad_()
    try:
        autograd_registration_check(func, args, kwargs)
    except AssertionError as error:
        if named is not None:
            raise Found(line(error)) from error
        raise Skipped(
            "the function around the operator may have the gradient"
        ) from error
    except NotImplementedError as error:
        raise Skipped(line(error)) from error
    except Exception as error:
        raise Refused(line(error)) from error


@checks("fake kernel")
def _(case: Case) -> None:
    refusal = None
    for func, args, kwargs in case.registered():
        for what, leaves in _variants(Leaves.of(Sample(args, kwargs))):
            try:
                _promised(case, func, leaves, what)
            except Refused as why:
                refusal = refusal or why
    if refusal:
        raise refusal


def _variants(leaves: Leaves) -> Iterator[tuple[str, Leaves]]:
    yield "the sample", leaves
    for n in leaves.tensors():
        for name, view in values.layouts(leaves.values[n]):
            yield f"{leaves.names[n]} {name}", leaves.replaced({n: view})
    real = [n for n in leaves.floating() if leaves.values[n].is_floating_point()]
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        for places in [real] + [[n] for n in real if len(real) > 1]:
            what = ", ".join(leaves.names[n] for n in places)
            lower = leaves.mapped(lambda x, d=dtype: x.to(d), places)
            yield f"{what} in {short(dtype)}", lower


def _promised(case: Case, func: Any, leaves: Leaves, what: str) -> None:
    try:
        real = case.asked(func, leaves.copies())
    except Refused:  # it takes no such layout or dtype
        return
    with FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True) as mode:
        fake_leaves = leaves.mapped(mode.from_tensor, leaves.tensors())
        fake = case.asked(func, fake_leaves)
    fakes, reals = (_pytree.tree_leaves(each) for each in (fake, real))
    if len(fakes) != len(reals):
        raise Found(f"{what}: {len(fakes)} results instead of {len(reals)}")
    for f, r in zip(fakes, reals, strict=True):
        if not isinstance(f, Tensor) or not isinstance(r, Tensor):
            continue
        for name, promise, truth in _facts(f, r):
            if promise != truth:
                text = f"promises {name} {promise}, and the kernel returns {truth}"
                raise Found(f"{func}, {what}: {text}")


def _facts(f: Tensor, r: Tensor) -> Iterator[tuple[str, Any, Any]]:
    yield "the dtype", short(f.dtype), short(r.dtype)
    yield "the device", f.device.type, r.device.type
    known = [isinstance(size, int) for size in f.shape]
    if len(known) != r.dim() or all(known):
        yield "the shape", list(f.shape), list(r.shape)
    if all(known) and r.numel() and r.layout == torch.strided == f.layout:
        # The stride of a dimension of size 1 leads nowhere.
        strides = (
            [s for n, s in zip(x.shape, x.stride(), strict=True) if n > 1]
            for x in (f, r)
        )
        yield "the strides", *strides

"""What an operator's registration promises, beside what a call does."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree

from opbook_tools.check import values
from opbook_tools.check.case import Case, annotated, checks, overload, switched
from opbook_tools.check.errors import Found, Noted, Refused, Skipped, asked
from opbook_tools.check.values import Leaves, short
from opbook_tools.sample import Sample

DEVICES = (torch.device, str)  # what may name a device for the result


@checks("schema")
def _(case: Case) -> None:
    called: list[tuple] = []
    try:
        called = case.registered(backward=True)
    except Skipped:
        if not case.facts.written:
            raise
    for func, args, kwargs in called:
        given = Leaves.of(Sample(args, kwargs))
        _keeps_its_schema(case, func, given)
        for what, others in switched(func, given):
            for leaves in others:
                with contextlib.suppress(Refused):
                    case.ask_the_cpu(leaves, func)
                    _keeps_its_schema(case, func, leaves, f", {what}")
    _counts_its_writes(case)


def _keeps_its_schema(case: Case, func: Any, leaves: Leaves, what: str = "") -> None:
    writable, aliased = annotated(func, leaves)
    before = leaves.copies()
    outcome = case.call(leaves, func)
    for n in leaves.tensors():
        was, now = before.values[n], leaves.values[n]
        same = torch.equal(values.memory(was), values.memory(now))
        if not same and n not in writable:
            raise Found(
                f"{func}{what}: {leaves.names[n]} is written, "
                "and the schema has no (a!)"
            )
    memory = {values.storage_of(leaves.values[n]): n for n in leaves.tensors()}
    memory.pop(0, None)
    for x in outcome.tensors():
        n = memory.get(values.storage_of(x)) if values.is_plain(x) else None
        if n is not None and n not in aliased:
            name = leaves.names[n]
            raise Found(
                f"{func}{what}: a result is the memory of {name}, "
                "and the schema has no (a)"
            )


def _counts_its_writes(case: Case) -> None:
    """Autograd notices a write to what it has saved by the tensor's version."""
    leaves = case.leaves.copies()
    written = [
        n
        for n in case.facts.written  # a state beside a result may stay unnoticed
        if case.facts.calls or not case.expected.results or case.matters(n)
    ]
    before = {n: leaves.values[n]._version for n in written}
    case.call(leaves)
    for n, version in before.items():
        if leaves.values[n]._version == version:
            raise Found(
                f"{leaves.names[n]} is written, and its version is not advanced: "
                "autograd does not notice, and computes wrong gradients"
            )


@functools.cache
def prepare() -> Callable:
    """Import what imports Triton, which an operator's module may set up."""
    from torch.testing._internal.optests import autograd_registration_check

    return autograd_registration_check


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
        asked(prepare(), func, args, kwargs)
    except Refused as why:
        error = why.__cause__
        if isinstance(error, NotImplementedError):
            raise Skipped(str(why)) from error
        if not isinstance(error, AssertionError):
            raise
        if named is not None:
            raise Found(str(why)) from error
        text = "the function around the operator may have the gradient"
        raise Skipped(text) from error


@checks("fake kernel")
def _(case: Case) -> None:
    refusal = note = None
    for func, args, kwargs in case.registered(backward=True):
        given = Leaves.of(Sample(args, kwargs))
        switches = [(w, x) for w, every in switched(func, given) for x in every]
        for what, leaves in (*_variants(given, case.sizes), *switches):
            try:
                case.ask_the_cpu(leaves, func)
                _promised(case, func, leaves, what)
            except Refused as why:
                refusal = refusal or why
        _follows_the_device(case, func, given)
        note = note or _autocast(case, func, given)
    if refusal or note:
        raise refusal or note


def _autocast(case: Case, func: Any, leaves: Leaves) -> Noted | None:
    """A compiled graph calls the kernel without autocast, so nothing breaks there."""
    try:
        with torch.autocast(_device(leaves).type):
            _promised(case, func, leaves, "the sample under autocast")
    except Refused:
        return None
    except Found as why:
        if case.strict:
            raise
        return Noted(f"compiled and eager calls differ: {why}")
    return None


def _variants(leaves: Leaves, sizes: bool) -> Iterator[tuple[str, Leaves]]:
    yield "the sample", leaves
    if sizes or leaves.tensors() == leaves.floating():  # integers may be indices
        yield from values.in_other_sizes(leaves, values.changes(leaves))
    for n in leaves.tensors():
        for name, view in values.layouts(leaves.values[n]):
            yield f"{leaves.names[n]} {name}", leaves.replaced({n: view})
    real = [n for n in leaves.floating() if leaves.values[n].is_floating_point()]
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        for places in leaves.groups(real):
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


def _device(leaves: Leaves) -> torch.device:
    places = leaves.tensors()
    return leaves.values[places[0]].device if places else torch.device("cpu")


def _follows_the_device(case: Case, func: Any, leaves: Leaves) -> None:
    """A result is where the arguments are, if the kernel's is, on any device."""
    if not leaves.tensors() or any(isinstance(v, DEVICES) for v in leaves.values):
        return
    try:
        real = case.call(leaves.copies(), func).tensors()
        on_meta = leaves.mapped(lambda x: x.to("meta"), leaves.tensors())
        fake = case.call(on_meta, func).tensors()
    except Refused:
        return
    device = _device(leaves)
    for f, r in zip(fake, real, strict=False):
        if r.device == device and f.device.type != "meta":
            text = f"of arguments on the device meta it makes a result on {f.device}"
            raise Found(f"{func}: {text}")


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

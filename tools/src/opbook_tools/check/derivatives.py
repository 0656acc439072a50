"""Derivatives in each mode, beside difference quotients."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from opbook_tools.check import compare, values
from opbook_tools.check.case import Case, checks, gradients, is_pytorchs, switched
from opbook_tools.check.errors import Found, Noted, Refused, Skipped, asked
from opbook_tools.check.values import Leaves

Function = Callable[[Sequence[Tensor]], list[Tensor]]
LARGE = -1024  # exact in each dtype, so that the gradient has the same digits


@dataclasses.dataclass
class Problem:
    """A function of the tensors to differentiate by, and where it is looked at."""

    case: Case
    leaves: Leaves
    places: list[int]
    is_precise: bool
    constant: frozenset[int] = frozenset()  # results that are left out

    @property
    def at(self) -> list[Tensor]:
        """The tensors to differentiate by."""
        return [self.leaves.values[n].detach() for n in self.places]

    def __call__(
        self, inputs: Sequence[Tensor], beside: Mapping[int, Tensor] | None = None
    ) -> list[Tensor]:
        """The results that have derivatives, or what is written instead of one.

        What is written beside a result is a state, as that of a batch norm is.
        """
        written = self.case.facts.written
        pairs = zip(self.places, inputs, strict=True)
        given = {n: x.clone() if n in written else x for n, x in pairs}
        leaves = self.leaves.copies().replaced(given | dict(beside or {}))
        outcome = self.case.call(leaves)
        results = [x for x in outcome.tensors() if values.is_arithmetic(x)]
        after = [leaves.values[n] for n in leaves.floating() if n in written]
        memory = {values.storage_of(x) for x in after}
        if all(values.storage_of(x) in memory for x in results):
            results += [x for x in after if not any(x is y for y in results)]
        return [x for n, x in enumerate(results) if n not in self.constant]

    @property
    def reference(self) -> Problem:
        """The same of the reference."""
        case = dataclasses.replace(self.case, operator=self.case.reference)
        return dataclasses.replace(self, case=case)

    def names(self) -> list[str]:
        """How the tensors to differentiate by are called."""
        return [self.leaves.names[n] for n in self.places]

    def compare(
        self,
        actual: Sequence[Tensor],
        expected: Sequence[Tensor],
        what: str,
        **options: Any,
    ) -> None:
        """Compare gradients by all of the tensors.

        Raises:
            Found: Two differ.
        """
        options = _tolerances(self) | options
        noise = options.pop("noise", [None] * len(self.places))
        columns = actual, expected, self.names(), noise
        for a, e, name, moved in zip(*columns, strict=True):
            name = f"the gradient by {name}"
            compare.demand(a, e, what, name, noise=moved, **options)


def prepare() -> None:
    """Import what forward mode needs, before the processes of the checks."""
    with forward_ad.dual_level():
        one = torch.ones(1)
        torch.tanh(forward_ad.make_dual(one, one))


def _problem(case: Case) -> Problem:
    refused = {
        n
        for n, name in enumerate(case.leaves.names)
        if n in case.nondifferentiable or name in case.nondifferentiable
    }
    places = [n for n in case.leaves.floating() if n not in refused]
    places = [n for n in places if case.leaves.values[n].numel()]
    if not places:
        raise Skipped("it takes no tensor to differentiate by")
    double = case.leaves.copies().mapped(values.in_double, case.leaves.floating())
    try:
        results = case.call(double.copies()).tensors()
        kinds = {
            x.dtype.itemsize // (1 + x.is_complex())
            for x in results
            if values.is_arithmetic(x)
        }
        if kinds <= {8}:
            return _of_what_has_one(Problem(case, double, places, is_precise=True))
    except Refused:
        pass
    low = case.leaves.copies()
    if any(low.values[n].dtype.itemsize < 4 for n in places):
        raise Skipped("differences in half precision are too coarse")
    return _of_what_has_one(Problem(case, low, places, is_precise=False))


def _of_what_has_one(problem: Problem) -> Problem:
    """Without results that have no gradient, as statistics beside a norm have none."""
    if problem.case.strict:
        return problem
    reference = [problem.reference] if problem.case.reference else []
    constant = []
    for each in (problem, *reference):
        with contextlib.suppress(Refused):
            results = each([x.clone().requires_grad_() for x in each.at])
            none = {n for n, x in enumerate(results) if not x.requires_grad}
            constant.append(none if len(none) < len(results) else set())
    both = frozenset.intersection(*map(frozenset, constant)) if constant else ()
    return dataclasses.replace(problem, constant=frozenset(both))


def _jittered(problem: Problem, number: int) -> Problem:
    """Near by, where selected elements have a distance and no kink is met."""
    generator = torch.Generator().manual_seed(number)

    def move(x: Tensor) -> Tensor:
        away = torch.rand(x.shape, generator=generator, dtype=torch.float64)
        away = _as_symmetric(x.detach(), away)
        size = x.detach().abs().mean().item() or 1.0
        way = number * size * (away - 0.4).to(x.device)
        return (x.detach() + 0.05 * way).to(x.dtype)

    leaves = problem.leaves.mapped(move, problem.places)
    return dataclasses.replace(problem, leaves=leaves)


def _directions(like: Sequence[Tensor], number: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(number)

    def draw(x: Tensor) -> Tensor:
        parts = torch.rand((*x.shape, 2), generator=generator, dtype=torch.float64)
        is_negative = torch.rand(parts.shape, generator=generator) < 0.5
        parts = (0.25 + parts) * torch.where(is_negative, -1.0, 1.0)
        drawn = torch.view_as_complex(parts) if x.is_complex() else parts[..., 0]
        return drawn.contiguous().to(x.device, x.dtype)

    return [draw(x) for x in like]


def _weights(results: Sequence[Tensor]) -> list[Tensor]:
    """What flows into the backward pass from each result."""
    return _directions(results, 1)


def _as_symmetric(x: Tensor, v: Tensor) -> Tensor:
    """Keep a symmetric matrix so: an operator need not read the other half of it."""
    is_square = x.dim() >= 2 and x.shape[-1] == x.shape[-2]
    return (v + v.mH) / 2 if is_square and torch.allclose(x, x.mH) else v


def _ways_to_go(at: Sequence[Tensor]) -> list[Tensor]:
    """The directions along which differences are taken."""
    return [_as_symmetric(x, v) for x, v in zip(at, _directions(at), strict=True)]


def _along(
    at: Sequence[Tensor], wanted: int, way: Tensor | None = None
) -> list[Tensor]:
    """A direction, or a given one, in which one of the tensors alone changes."""
    along = [torch.zeros_like(x) for x in at]
    along[wanted] = _ways_to_go([at[wanted]])[0] if way is None else way
    return along


def _quotients(
    f: Function, at: Sequence[Tensor], along: Sequence[Tensor], precise: bool
) -> list[tuple[Tensor, Tensor]]:
    """For each result its change along a direction, and how uncertain that is.

    The uncertainty is infinite where no difference can tell: at kinks, infinities.
    """
    best: list[tuple[Tensor, Tensor]] = []
    for h in (1e-4, 1e-3) if precise else (1e-2, 3e-2):
        coarse, fine = (_central(f, at, along, step) for step in (h, h / 2))
        pairs = []
        for c, d in zip(coarse, fine, strict=True):
            error = (c - d).abs()
            error = torch.where(error.isfinite(), error, torch.inf)
            pairs.append(((4 * d - c) / 3, error))
        if not best:
            best = pairs
            continue
        for n, ((d, e), (d2, e2)) in enumerate(zip(best, pairs, strict=True)):
            best[n] = torch.where(e <= e2, d, d2), torch.minimum(e, e2)
    return best


def _central(
    f: Function, at: Sequence[Tensor], along: Sequence[Tensor], h: float
) -> list[Tensor]:
    with torch.no_grad():
        above = f([x + h * v for x, v in zip(at, along, strict=True)])
        below = f([x - h * v for x, v in zip(at, along, strict=True)])
    if [x.shape for x in above] != [x.shape for x in below]:
        raise Skipped("the shape of the result depends on the numbers")
    return [
        (values.in_double(a.detach()) - values.in_double(b.detach())) / (2 * h)
        for a, b in zip(above, below, strict=True)
    ]


def _smooth(pair: tuple[Tensor, Tensor]) -> Tensor:
    """Where a quotient is certain enough to be compared."""
    quotient, error = pair
    size = quotient.abs()
    typical = size[size.isfinite()].mean() if size.isfinite().any() else 0.0
    return error <= 0.02 * (size + typical) + 1e-7


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (values.in_double(a).conj() * values.in_double(b)).sum().real


def _gradient(
    f: Function,
    at: Sequence[Tensor],
    wanted: Sequence[int],
    weights: Callable[[list[Tensor]], list[Tensor | None]],
    **options: bool,
) -> tuple[list[Tensor], bool]:
    """The gradient by some of the inputs, and whether the function has one at all."""
    inputs = [x.detach().clone().requires_grad_(n in wanted) for n, x in enumerate(at)]
    results = f(inputs)
    return gradients(results, weights(results), [inputs[n] for n in wanted], **options)


def _check_one(
    f: Function,
    at: list[Tensor],
    wanted: int,
    only: int | None,
    precise: bool,
    what: str,
) -> bool:
    """Compare one gradient with differences; whether the function has that gradient.

    Raises:
        Found: It is wrong; the element is named.
        Skipped: The function is too rough for differences.
    """
    along = _along(at, wanted)
    quotients = _quotients(f, at, along, precise)
    masks = [_smooth(pair) for pair in quotients]
    if only is not None:
        masks = [m & (n == only) for n, m in enumerate(masks)]
    elif sum(int(m.sum()) for m in masks) * 2 < sum(m.numel() for m in masks):
        raise Skipped("it is not smooth at the sample, nor near it")

    def weights(results: list[Tensor]) -> list[Tensor | None]:
        drawn = _weights(results)
        return [
            w * m if only in (None, n) else None
            for n, (w, m) in enumerate(zip(drawn, masks, strict=True))
        ]

    [gradient], exists = _gradient(f, at, [wanted], weights)
    drawn = _weights([q for q, _ in quotients])
    numeric = limit = torch.zeros((), dtype=torch.float64)
    for (q, error), m, w in zip(quotients, masks, drawn, strict=True):
        if only is None or m.any():
            q, error = torch.where(m, q, 0), torch.where(m, error, 0)
            numeric = numeric + _dot(w, q)
            limit = limit + 4 * (w.abs() * error).sum()
            limit = limit + (1e-6 if precise else 1e-3) * (w.abs() * q.abs()).sum()
    analytic = _dot(gradient, along[wanted])
    if (analytic - numeric).abs() <= limit + 1e-9:
        return exists
    if not exists and only is None:
        return False
    raise Found(
        f"{what}: {_first_wrong(f, at, wanted, masks, drawn, gradient, limit, precise)}"
    )


def _first_wrong(f, at, wanted, masks, drawn, gradient, limit, precise) -> str:
    """Name the first element whose derivative differs, with both values."""
    for number in range(min(64, gradient.numel())):
        unit = torch.zeros_like(at[wanted])
        unit.view(-1)[number] = 1
        quotients = _quotients(f, at, _along(at, wanted, unit), precise)
        numeric = sum(
            float(_dot(w, torch.where(m, q, 0)))
            for (q, _), m, w in zip(quotients, masks, drawn, strict=True)
        )
        got = float(_dot(gradient, unit))
        if not abs(got - numeric) <= float(limit):
            place = unit.nonzero()[0].tolist()
            return f"{place} is {got:.6g}, and differences give {numeric:.6g}"
    return "its sum along a direction is not that of differences"


@checks("gradient")
def _(case: Case) -> None:
    problem = _problem(case)
    missing, rough = _by_each(problem)
    if len(missing) == len(problem.places):
        at, precise = problem.at, problem.is_precise
        depends = (_depends(problem, at, n, precise) for n in missing)
        if is_pytorchs(case.operator) or not any(depends):
            raise Skipped("it has no gradient")
        raise Found(
            "the result depends on the arguments, and no gradient is recorded; "
            "if none is meant: --expect 'gradient: the result depends on the arguments'"
        )
    if rough:
        raise rough
    _given_by_reference(problem, missing)
    _together(problem, missing)
    for n in missing:
        _recorded_elsewhere(problem, n)
    _finite_where_reference_is(problem)
    _with_other_flags(case)
    names = [problem.names()[n] for n in missing]
    names += [f"result {n}" for n in sorted(problem.constant)]
    if names:
        raise Noted(f"not checked: no gradient is recorded for {', '.join(names)}")


def _by_each(problem: Problem) -> tuple[list[int], Skipped | None]:
    """The arguments without a gradient, and why one could not be compared."""
    missing, rough = [], None
    for wanted in range(len(problem.places)):
        try:
            if not _near_by(problem, lambda p, w=wanted: _each_result(p, w)):
                missing.append(wanted)
        except Skipped as why:
            rough = why
        except Found as wrong:
            if not _is_that_of_reference(problem, wanted):
                _explain(problem, wrong)
    return missing, rough


def _with_other_flags(case: Case) -> None:
    end = time.monotonic() + 10  # each takes as long as the sample did
    for what, others in switched(case.operator, case.leaves):
        for leaves in others if time.monotonic() < end else ():
            with contextlib.suppress(Refused, Skipped, Noted):
                case.ask_the_cpu(leaves)
                other = case.having(leaves)
                try:
                    _by_each(_problem(other))
                except Found as wrong:
                    raise Found(f"{wrong}; with {what}") from wrong
                break


def _finite_where_reference_is(problem: Problem) -> None:
    """People divide 0 by 0 at zeros, and infinity by infinity at large numbers."""
    if problem.case.reference is None:
        return
    for n, name in enumerate(problem.names()):
        for special in values.special(problem.at[n]):
            leaves = problem.leaves.replaced({problem.places[n]: special.numbers})
            here = dataclasses.replace(problem, leaves=leaves)
            if not special.numbers.isfinite().all():
                continue
            with contextlib.suppress(Refused):
                [right], _ = _gradient(here.reference, here.at, [n], _weights)
                if not right.isfinite().all():
                    continue
                [got], _ = _gradient(here, here.at, [n], _weights)
                if not got.isfinite().all():
                    text = f"{special.name} is not finite, and that of the reference is"
                    raise Found(f"the gradient by {name} with {text}")


def _explain(problem: Problem, wrong: Found) -> None:
    """Say what may be meant to be so, and what is to be done if it is not."""
    results = problem([x.clone().requires_grad_() for x in problem.at])
    nodes = {x.grad_fn.name() for x in results if x.grad_fn}
    expected = shlex.quote(f"gradient: {str(wrong).partition(':')[0]}:")
    text = f"if it is meant to differ: --expect {expected}"
    if problem.case.facts.written and nodes == {"CloneBackward0"}:  # of the problem
        text = "no gradient is recorded of what is written"
        if _writes_alone(problem.case):
            raise Noted(f"not checked: {text}")
        text += ": ctx.mark_dirty tells autograd, or refuse what requires one"
    raise Found(f"{wrong}; {text}") from wrong


def _writes_alone(case: Case) -> bool:
    """Whether it returns nothing, as an optimizer does: PyTorch records no gradient."""
    return not case.expected.results and not case.strict


def _is_that_of_reference(problem: Problem, n: int) -> bool:
    """Whether the reference's gradient is the same, and other than differences."""
    if problem.case.reference is None:
        return False
    run = functools.partial(_each_result, wanted=n)
    if not _is_wrong_too(problem.reference, run):
        return False
    both = problem, problem.reference
    pair = [_gradient(each, problem.at, [n], _weights)[0][0] for each in both]
    return not compare.difference(*pair, **_tolerances(problem))


def _recorded_elsewhere(problem: Problem, n: int) -> None:
    """An argument may have no gradient, but then in no way of asking for it."""
    name = problem.names()[n]
    every = list(range(len(problem.places)))
    for what, wanted, options in (
        ("with create_graph=True", [n], {"create_graph": True}),
        ("together with the others", every, {}),
    ):
        with contextlib.suppress(Refused):
            found, _ = _gradient(problem, problem.at, wanted, _weights, **options)
            if found[wanted.index(n)].any():
                raise Found(f"no gradient by {name}, and {what} there is one")
    if problem.case.strict and _depends(problem, problem.at, n, problem.is_precise):
        raise Found(f"no gradient by {name}, and the result depends on it")


def _given_by_reference(problem: Problem, missing: list[int]) -> None:
    """What has a gradient in the reference must have one."""
    if problem.case.reference is None or _writes_alone(problem.case):
        return
    for n in missing:
        [gradient], _ = _gradient(problem.reference, problem.at, [n], _weights)
        if gradient.any():
            name = problem.names()[n]
            raise Found(f"no gradient by {name}, and the reference has one")


def _differentiable(case: Case) -> Problem:
    """Without the arguments for which no gradient is recorded."""
    problem = _problem(case)
    try:
        places = [
            place
            for n, place in enumerate(problem.places)
            if _gradient(problem, problem.at, [n], _weights)[1]
        ]
    except Refused:
        return problem
    return dataclasses.replace(problem, places=places or problem.places)


def _near_by(problem: Problem, run: Callable[[Problem], bool]) -> bool:
    """At the sample or, where that is a kink, beside it."""
    for number in range(3):
        moved = _jittered(problem, number) if number else problem
        try:
            return run(moved)
        except Skipped as why:
            reason = why
        except Found:
            # One more place must agree, or a kink looks like a fault.
            if _is_wrong_too(_jittered(problem, number + 1), run):
                raise
            reason = Skipped("it is wrong at the sample, and right near it: a kink")
    raise reason


def _is_wrong_too(problem: Problem, run: Callable[[Problem], bool]) -> bool:
    try:
        run(problem)
    except Found:
        return True
    except (Skipped, Refused):
        pass
    return False


def _each_result(problem: Problem, wanted: int) -> bool:
    name = f"the gradient by {problem.names()[wanted]}"
    exists = _check_one(problem, problem.at, wanted, None, problem.is_precise, name)
    with torch.no_grad():
        count = len(problem(problem.at))
    if exists and count > 1:
        for only in range(count):
            what = f"{name} of result {only} alone"
            _check_one(problem, problem.at, wanted, only, problem.is_precise, what)
    return exists


def _tolerances(problem: Problem) -> dict[str, float]:
    eps = max(compare.eps_of(problem.at), torch.finfo(torch.float64).eps)
    return {"eps": eps if problem.is_precise else 8 * eps, "few": 1024}


def _together(problem: Problem, missing: list[int]) -> None:
    """One gradient of all arguments beside one for each."""
    places = [place for n, place in enumerate(problem.places) if n not in missing]
    problem = dataclasses.replace(problem, places=places)
    every = range(len(places))
    all_at_once, _ = _gradient(problem, problem.at, every, _weights)
    alone = [_gradient(problem, problem.at, [n], _weights)[0][0] for n in every]
    problem.compare(all_at_once, alone, "of all arguments at once")


@checks("gradient in other ways")
def _(case: Case) -> None:
    problem = _differentiable(case)
    every = range(len(problem.places))
    expected, exists = _gradient(problem, problem.at, every, _weights)
    if not exists:
        raise Skipped("it has no gradient")
    again, _ = _gradient(problem, problem.at, every, _weights, create_graph=True)
    problem.compare(again, expected, "with create_graph=True")
    _twice(problem, expected)
    for what, other in _gradients_of_gradients(problem):
        got, _ = _gradient(problem, problem.at, every, other)
        problem.compare(got, expected, f"with a gradient {what}")
    large, _ = _gradient(
        problem, problem.at, every, lambda x: [LARGE * w for w in _weights(x)]
    )
    scaled = [g / LARGE for g in large]
    problem.compare(scaled, expected, f"with a gradient {LARGE} times as large")
    _expanded_weights(problem, expected)
    # Memory is filled with random numbers in its order.
    if not (case.facts.is_random or case.has_generator):
        _other_layouts(problem, expected)
    _changed_afterwards(problem, expected)
    _in_own_dtype(case, problem)


def _twice(problem: Problem, expected: list[Tensor]) -> None:
    """The same graph, walked again."""
    inputs = [x.clone().requires_grad_() for x in problem.at]
    results = problem(inputs)
    for _ in range(2):
        got, _ = gradients(results, _weights(results), inputs, retain_graph=True)
    problem.compare(got, expected, "when backward runs again")


def _gradients_of_gradients(problem: Problem) -> Iterator[tuple[str, Callable]]:
    """Weights of the same numbers, as `cat`, slices and transposes hand them on."""
    with torch.no_grad():
        results = problem(problem.at)
    kinds = [list(values.layouts(w)) for w in _weights(results)]
    for number in range(max(map(len, kinds), default=0)):
        chosen = [each[min(number, len(each) - 1)] if each else None for each in kinds]
        name = next(each[0] for each in chosen if each)

        def weights(results: list[Tensor], chosen=chosen) -> list[Tensor]:
            drawn = _weights(results)
            return [c[1] if c else w for c, w in zip(chosen, drawn, strict=True)]

        yield f"that lies {name}", weights


def _expanded_weights(problem: Problem, usual: list[Tensor]) -> None:
    """What `sum` hands on, over all dimensions or over one: strides of 0."""
    every = range(len(problem.places))
    eps = _tolerances(problem)["eps"]

    def expanded(w: Tensor, dim: int | None) -> Tensor:
        if dim is None:
            return w.new_ones(()).expand(w.shape)
        return w.narrow(dim, 0, min(1, w.shape[dim])).contiguous().expand(w.shape)

    for dim in (None, 0, -1):

        def weights(results: list[Tensor], dim=dim) -> list[Tensor]:
            drawn = _weights(results)
            return [expanded(w, dim if w.dim() else None) for w in drawn]

        def dense(results: list[Tensor], weights=weights) -> list[Tensor]:
            return [w.contiguous() for w in weights(results)]

        expected, _ = _gradient(problem, problem.at, every, dense)
        got, _ = _gradient(problem, problem.at, every, weights)
        # The terms of a norm's gradient cancel: what is left of them is rounding.
        noise = [eps * u.abs().amax() if u.numel() else None for u in usual]
        what = "with a gradient of strides 0, as sum() makes it"
        problem.compare(got, expected, what, noise=noise)


def _other_layouts(problem: Problem, expected: list[Tensor]) -> None:
    for n, name in enumerate(problem.names()):
        for layout, view in values.layouts(problem.at[n]):
            inputs = [x.clone().requires_grad_() for x in problem.at]
            inputs[n] = view.detach().requires_grad_()
            with contextlib.suppress(Refused):
                results = problem(inputs)
                got, _ = gradients(results, _weights(results), inputs)
                problem.compare(got, expected, f"{name}, {layout}")


def _changed_afterwards(problem: Problem, expected: list[Tensor]) -> None:
    """What is needed for the gradient changes before it is computed."""
    leaves, known = problem.leaves, {*problem.places, *problem.case.facts.written}
    fixed = [n for n in leaves.tensors() if n not in known]  # indices and masks
    for n in (*problem.places, *fixed, None):
        inputs = [x.clone().requires_grad_() for x in problem.at]
        given = [x.clone() for x in inputs]
        beside = {n: leaves.values[n].clone()} if n in fixed else {}
        results = problem(given, beside)
        memory = {values.storage_of(x) for x in given}
        own = [
            x for x in results if x.requires_grad and values.storage_of(x) not in memory
        ]
        if len(own) < len(results):
            return
        kept = [x.clone() for x in own]
        by_place = dict(zip(problem.places, given, strict=True)) | beside
        try:
            with torch.no_grad():
                for x in own if n is None else [by_place[n]]:
                    x.mul_(0.5) if values.is_arithmetic(x) else x.zero_()
            got, _ = gradients(kept, _weights(results), inputs)
        except (Refused, RuntimeError):  # autograd has noticed
            continue
        which = "a result" if n is None else leaves.names[n]
        problem.compare(got, expected, f"when {which} changes before backward")


def _coarse_weights(results: Sequence[Tensor]) -> list[Tensor]:
    """The same numbers in each dtype."""
    drawn = _weights([x.detach().double() for x in results])
    pairs = zip(drawn, results, strict=True)
    return [w.to(torch.bfloat16).to(x.dtype) for w, x in pairs]


def _in_own_dtype(case: Case, problem: Problem) -> None:
    """The gradient of the sample as it is, beside the one in fp64."""
    if not problem.is_precise or case.facts.is_random or case.has_generator:
        return  # other numbers are drawn in each dtype
    for dtype in (None, *case.low_dtypes):
        own = case.leaves.copies()
        real = [n for n in own.floating() if own.values[n].is_floating_point()]
        if dtype is not None:
            own = own.mapped(lambda x, d=dtype: x.detach().to(d), real)
        wide_leaves = own.copies().mapped(values.in_double, own.floating())
        low = dataclasses.replace(problem, leaves=own)
        high = dataclasses.replace(problem, leaves=wide_leaves)
        eps = compare.eps_of(low.at)
        if any(x.is_complex() for x in low.at) or eps < 1e-12:
            continue
        every = range(len(problem.places))
        try:
            got, _ = _gradient(low, low.at, every, _coarse_weights)
            expected, _ = _gradient(high, high.at, every, _coarse_weights)
            noise = compare.spread(expected, _nearby_gradients(high, eps))
        except Refused:
            continue
        what = f"in {values.short(low.at[0].dtype)} beside fp64"
        options = {"eps": eps, "noise": noise, "few": 64, "dtype": False}
        problem.compare(got, expected, what, **options)


def _nearby_gradients(problem: Problem, eps: float) -> Iterator[list[Tensor]]:
    every = range(len(problem.places))
    for number in range(3):
        generator = torch.Generator().manual_seed(number)

        def rounded(x: Tensor, generator=generator) -> Tensor:
            # As far as the largest moves: what is near 0 may be shifted, then rounded.
            step = eps * (x.abs().amax() if x.numel() else 0)
            way = torch.randint(-1, 2, x.shape, generator=generator)
            return x + step * way.to(x.device)

        yield _gradient(problem, map(rounded, problem.at), every, _coarse_weights)[0]


@checks("second derivative")
def _(case: Case) -> None:
    problem = _differentiable(case)
    _near_by(problem, _second)
    if not problem.is_precise:
        why = "it refuses fp64, and differences in fp32 are too coarse"
        raise Skipped(f"a graph is recorded; its numbers: {why}")


def _second(problem: Problem) -> bool:
    count = len(problem.places)
    with torch.no_grad():
        weights = _weights(problem(problem.at))

    def gradient(inputs: Sequence[Tensor]) -> list[Tensor]:
        """The gradient as a function of the arguments and of what flows in."""
        with torch.enable_grad():
            given = [
                x if x.requires_grad else x.detach().clone().requires_grad_()
                for x in inputs[:count]
            ]
            results = problem(given)
            graph = {"create_graph": True}
            found, exists = gradients(results, inputs[count:], given, **graph)
            if not exists:
                raise Skipped("it has no gradient")
        return found

    at = [*problem.at, *weights]
    names = problem.names()
    names += [f"the gradient of result {n}" for n in range(len(weights))]
    for wanted, name in enumerate(names):
        what = f"the second derivative, by {name}"
        if precise := problem.is_precise:
            exists = _check_one(gradient, at, wanted, None, precise, what)
        else:
            exists = _gradient(gradient, at, [wanted], _weights)[1]
        if not exists and _depends(gradient, at, wanted, precise):
            given = [x.detach().clone().requires_grad_() for x in at]
            again = [x for x in gradient(given) if x.requires_grad]
            # What is marked once_differentiable raises here.
            asked(torch.autograd.backward, again, _weights(again))
            raise Found(f"{what}: create_graph=True records nothing, and it matters")
    return True


def _depends(f: Function, at: list[Tensor], wanted: int, precise: bool) -> bool:
    quotients = _quotients(f, at, _along(at, wanted), precise)
    least = 1e-6
    if not precise:  # as far as rounding moves the largest
        with torch.no_grad():
            sizes = [x.abs().max().item() for x in f(at) if x.numel()]
        least = 1e-3 * max(sizes, default=0.0)
    return any(bool((q.abs()[_smooth((q, e))] > least).any()) for q, e in quotients)


@checks("forward mode")
def _(case: Case) -> None:
    problem = _differentiable(case)
    if is_pytorchs(case.operator) and case.facts.is_random:
        raise Skipped("the operator is random")
    _near_by(problem, _tangents)


def _tangents(problem: Problem) -> bool:
    for chosen in _chosen_inputs(len(problem.places)):
        along = _ways_to_go(problem.at)
        along = [v if n in chosen else torch.zeros_like(v) for n, v in enumerate(along)]
        found = asked(_tangent, problem, along, chosen)
        quotients = _quotients(problem, problem.at, along, problem.is_precise)
        for n, (tangent, pair) in enumerate(zip(found, quotients, strict=True)):
            names = [problem.names()[i] for i in chosen]
            _compare_tangent(problem, n, tangent, pair, names)
    return True


def _chosen_inputs(count: int) -> list[list[int]]:
    alone = [[n] for n in range(count)]
    return alone if count == 1 else [*alone, list(range(count))]


def _tangent(
    problem: Problem, along: Sequence[Tensor], chosen: list[int]
) -> list[Tensor]:
    with forward_ad.dual_level():
        inputs = [
            forward_ad.make_dual(x, v) if n in chosen else x
            for n, (x, v) in enumerate(zip(problem.at, along, strict=True))
        ]
        pairs = [forward_ad.unpack_dual(x) for x in problem(inputs)]
        return [
            torch.zeros_like(p.primal) if p.tangent is None else p.tangent.clone()
            for p in pairs
        ]


def _compare_tangent(
    problem: Problem, n: int, tangent: Tensor, pair, names: list[str]
) -> None:
    quotient, error = pair
    mask = _smooth(pair)
    if mask.sum() * 2 < mask.numel():
        raise Skipped("it is not smooth at the sample, nor near it")
    size = quotient.abs()[mask].max() if mask.any() else 0.0
    relative = 1e-6 if problem.is_precise else 1e-2
    wrong = mask & ~(
        (values.in_double(tangent) - quotient).abs()
        <= 4 * error + relative * size + 1e-9
    )
    if not wrong.any():
        return
    case = problem.case
    writes = bool(case.facts.calls) and _writes_alone(case)
    if not case.strict and (writes or (not tangent.any() and _is_generated(problem))):
        raise Noted(
            "it has no forward mode: the tangent is zero, and nothing is raised"
        )
    place = tuple(wrong.nonzero()[0].tolist())
    raise Found(
        f"the tangent of result {n} along {' and '.join(names)}, {list(place)}, "
        f"is {tangent[place].item():.6g}, and differences give "
        f"{quotient[place].item():.6g}"
    )


def _is_generated(problem: Problem) -> bool:
    """Whether `register_autograd` made its gradient: that has no forward mode."""
    results = problem([x.clone().requires_grad_() for x in problem.at])
    nodes = {x.grad_fn for x in results if x.grad_fn}
    while new := {n for node in nodes for n, _ in node.next_functions if n} - nodes:
        nodes |= new
    return any("GeneratedBackwardFor" in node.name() for node in nodes)

"""One operator with one sample, and what all checks need to know of them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import logging
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from opbook_tools.check import compare, values
from opbook_tools.check.errors import (
    Found,
    Refused,
    Skipped,
    asked,
    unless_all_refuse,
)
from opbook_tools.check.values import Leaves
from opbook_tools.sample import Sample

# Namespaces of PyTorch's own operators.
OUTSIDE = re.compile("out of (bounds|range)")
OWN = ("aten", "prim", "prims", "inductor", "higher_order")


# The checks by name, in the order in which they run, and those that nothing may run
# before, or after, in a process.
CHECKS: dict[str, Callable[[Case], None]] = {}
ALONE: set[str] = set()


def checks(name: str, *, alone: bool = False) -> Callable[[Callable], Callable]:
    """Make a function the check of this name."""

    def register(run: Callable[[Case], None]) -> Callable[[Case], None]:
        CHECKS[name] = run
        ALONE.update([name] if alone else [])
        return run

    return register


@dataclasses.dataclass
class Facts:
    """What the first calls of an operator told; it travels between processes."""

    is_random: bool = False
    written: tuple[int, ...] = ()  # the places of arguments that a call changes
    calls: tuple[str, ...] = ()  # the registered operators that it calls


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a call returned and what it left in its arguments, by name."""

    names: tuple[str, ...]
    values: tuple[Any, ...]
    results: int  # how many of them were returned

    @classmethod
    def of(cls, result: Any, leaves: Leaves) -> Outcome:
        """Of a result, and of the arguments after the call."""
        pairs, _ = _pytree.tree_flatten_with_path(result)
        pairs = [] if result is None else pairs
        names = [f"the result{_pytree.keystr(path)}" for path, _ in pairs]
        found = [value for _, value in pairs]
        for n in leaves.tensors():
            names.append(f"{leaves.names[n]} after the call")
            found.append(leaves.values[n])
        return cls(tuple(names), tuple(found), len(pairs))

    def kept(self) -> Outcome:
        """The same in memory that no later call can reach."""
        held = (v.detach().clone() if isinstance(v, Tensor) else v for v in self.values)
        return dataclasses.replace(self, values=tuple(held))

    def tensors(self) -> list[Tensor]:
        """The tensors that were returned."""
        return [v for v in self.values[: self.results] if isinstance(v, Tensor)]


@dataclasses.dataclass
class Case:
    """An operator, its arguments, and what is known of them."""

    operator: Callable
    leaves: Leaves
    reference: Callable | None = None
    nondifferentiable: tuple[int | str, ...] = ()
    strict: bool = False
    sizes: bool = False
    facts: Facts = dataclasses.field(default_factory=Facts)

    def on(self, device: str | None) -> Case:
        """The same with the tensors of the sample on a device."""
        if device is None:
            return self
        return dataclasses.replace(self, leaves=self.leaves.copies(device))

    def call(self, leaves: Leaves, operator: Callable | None = None) -> Outcome:
        """Call with these very tensors.

        Raises:
            Refused: The operator raised.
        """
        return Outcome.of(self.asked(operator or self.operator, leaves), leaves)

    def ask_the_cpu(self, leaves: Leaves, operator: Callable | None = None) -> None:
        """Find out whether other arguments than the sample's lead out of a tensor.

        A kernel of a GPU raises nothing there, and no later call of the process can use
        the GPU. Of an operator that the CPU does not have, nothing is known.

        Raises:
            Refused: The operator says so on the CPU.
        """
        places = leaves.tensors()
        if any(leaves.values[n].is_cuda for n in places):
            try:
                self.call(leaves.mapped(Tensor.cpu, places).copies(), operator)
            except Refused as why:
                if OUTSIDE.search(str(why)):
                    raise

    def asked(self, operator: Callable, leaves: Leaves) -> Any:
        """What an operator returns; what it raises is a refusal, and no finding."""
        if self.facts.is_random:
            seed(0)
        return asked(leaves.call, operator)

    def having(self, leaves: Leaves, operator: Callable | None = None) -> Case:
        """With other arguments, or of another operator, and what is known of it.

        Raises:
            Refused: It does not take these arguments.
        """
        other = {"leaves": leaves, "operator": operator or self.operator}
        case = dataclasses.replace(self, **other, facts=Facts())
        facts_of(case)
        return case

    @property
    def has_generator(self) -> bool:
        """Whether a generator is among the arguments."""
        return any(isinstance(value, torch.Generator) for value in self.leaves.values)

    @functools.cached_property
    def is_interpreted(self) -> bool:
        """Whether it launches a kernel in Triton's interpreter."""
        interpreter = sys.modules.get("triton.runtime.interpreter")
        if interpreter is None:
            return False
        launch, launched = interpreter.GridExecutor.__call__, []

        def note(*values: Any, **options: Any) -> Any:
            launched.append(values)
            return launch(*values, **options)

        with mock.patch.object(interpreter.GridExecutor, "__call__", note):
            self.call(self.leaves.copies())
        return bool(launched)

    @property
    def low_dtypes(self) -> tuple[torch.dtype, ...]:
        """Those of 16 bits; the interpreter calculates with the bits of bfloat16."""
        every = torch.bfloat16, torch.float16
        return every[1:] if self.is_interpreted else every

    @functools.cached_property
    def expected(self) -> Outcome:
        """An ordinary call with a copy of the sample."""
        return self.call(self.leaves.copies()).kept()

    @functools.cached_property
    def eps(self) -> float:
        """The rounding of the coarsest dtype of the arguments and results."""
        return compare.eps_of((*self.leaves.values, *self.expected.values))

    @functools.cached_property
    def noise(self) -> list[Tensor | None]:
        """How much each result changes with a rounding of the arguments."""
        return self.noise_of(self.leaves, self.expected)

    def noise_of(
        self, leaves: Leaves, expected: Outcome, operator: Callable | None = None
    ) -> list[Tensor | None]:
        """The same for other arguments; infinite where a rounding decides a result."""
        eps = compare.eps_of((*leaves.values, *expected.values))
        generator = torch.Generator().manual_seed(0)

        def rounded(x: Tensor) -> Tensor:
            way = torch.randint(-1, 2, x.shape, generator=generator, dtype=torch.int8)
            return _scaled(x, 1 + eps * way.to(x.device, torch.float64))

        others = (leaves.copies().mapped(rounded, leaves.floating()) for _ in range(3))
        noise = compare.spread(expected.values, self.values_of(others, operator))
        for n, place in enumerate(leaves.tensors(), expected.results):
            if place not in self.facts.written:
                noise[n] = None  # what was rounded is an argument, and no result
        return [compare.even(each) for each in noise]

    def values_of(
        self, every: Iterable[Leaves], operator: Callable | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """What calls return and leave in their arguments, without those refused."""
        for leaves in every:
            with contextlib.suppress(Refused):
                yield self.call(leaves, operator).values

    def matters(self, place: int) -> bool:
        """Whether the results depend on the numbers of an argument."""
        leaves = self.leaves.copies()
        if self.facts.is_random or not leaves.values[place].numel():
            return False
        other = values.other_values(leaves.values[place])
        try:
            outcome = self.call(leaves.replaced({place: other}))
        except Refused:
            return True  # it has looked at the numbers
        pairs = zip(
            outcome.values, self.expected.values[: outcome.results], strict=False
        )
        return any(compare.difference(a, e) for a, e in pairs)

    def compare(
        self,
        actual: Outcome,
        what: str,
        expected: Outcome | None = None,
        noise: list[Tensor | None] | None = None,
        **options: Any,
    ) -> None:
        """Compare all that was returned and all that was written.

        Raises:
            Found: There is a difference; it says where.
        """
        if expected is None:
            expected, noise = self.expected, self.noise
            options.setdefault("eps", self.eps)
        if actual.results != expected.results:
            count = f"{actual.results} results instead of {expected.results}"
            raise Found(f"{what}: {count}")
        for n, (a, e) in enumerate(zip(actual.values, expected.values, strict=True)):
            moved = noise[n] if noise else None
            compare.demand(a, e, what, expected.names[n], noise=moved, **options)

    def all_the_same(
        self,
        situations: Iterable[tuple[str, Callable[[], Outcome]]],
        **options: Any,
    ) -> None:
        """Compare with an ordinary call; if the operator raises each time, it refuses.

        Raises:
            Found: One of the calls had another outcome.
            Refused: None of them had any.
        """

        def compared(what: str, call: Callable[[], Outcome]) -> None:
            try:
                actual = call()
            except Refused as why:
                raise Refused(f"{what}: {why}") from why
            self.compare(actual, what, **options)

        unless_all_refuse(lambda each=each: compared(*each) for each in situations)

    def once_known(self, has_order: bool = False) -> None:
        """Skip what compares numbers if the operator draws them, or their order."""
        if self.facts.is_random:
            raise Skipped("the operator is random")
        if has_order and self.has_generator:
            raise Skipped("it draws from an argument, a generator, in an order")

    def registered(self, backward: bool = False) -> list[tuple]:
        """The registered operators that are called, with what is passed on to them.

        If the operator itself is a registered one, it is the one, with the sample;
        `backward` adds those that its gradient calls.
        """
        found = []
        if (named := overload(self.operator)) and named.namespace not in OWN:
            leaves = self.leaves.copies()
            args, kwargs = _pytree.tree_unflatten(list(leaves.values), leaves.spec)
            found.append((named, tuple(args), kwargs))
        else:
            with _Calls() as calls, torch.no_grad():
                self.asked(self.operator, self.leaves.copies())
            found += calls.found
        if found and backward:
            found += self._called_backward()
        if not found:
            raise Skipped("it calls no registered operator but PyTorch's own")
        return list({each[0]: each for each in reversed(found)}.values())[::-1]

    def _called_backward(self) -> list[tuple]:
        leaves = self.leaves.copies()
        places = [n for n in leaves.floating() if n not in self.facts.written]
        with contextlib.suppress(Exception):  # of the gradient, which has its checks
            leaves = leaves.mapped(lambda x: x.requires_grad_(), places)
            results = self.call(leaves).tensors()
            weights = [torch.ones_like(x) for x in results]
            with _Calls() as calls:
                gradients(results, weights, [leaves.values[n] for n in places])
            return calls.found
        return []


def gradients(
    results: Sequence[Tensor],
    weights: Sequence[Tensor | None],
    inputs: Sequence[Tensor],
    **options: bool,
) -> tuple[list[Tensor], bool]:
    """The gradient by each input, zeros for none, and whether there is any at all.

    What flows into a result is its weight; None leaves the result out.
    """
    pairs = [
        (x, w)
        for x, w in zip(results, weights, strict=True)
        if w is not None and x.requires_grad
    ]
    found: Sequence[Tensor | None] = [None] * len(inputs)
    if pairs and inputs:
        outputs, flowing = zip(*pairs, strict=True)
        options = {"allow_unused": True, **options}
        found = asked(torch.autograd.grad, outputs, inputs, flowing, **options)
    both = zip(found, inputs, strict=True)
    filled = [torch.zeros_like(x) if g is None else g for g, x in both]
    return filled, any(g is not None for g in found)


def overload(operator: Callable) -> Any:
    """The registered operator that a callable is, if it is one."""
    operator = getattr(operator, "_opoverload", operator)  # of a CustomOpDef
    if isinstance(operator, torch._ops.OpOverloadPacket):
        names = operator.overloads()
        return getattr(operator, names[0]) if len(names) == 1 else None
    return operator if isinstance(operator, torch._ops.OpOverload) else None


def switched(operator: Callable, leaves: Leaves) -> Iterator[tuple[str, list[Leaves]]]:
    """With each flag the other way round, and each optional tensor given or left out.

    A number is halved: the sample may have the one that the code has, too.

    What is given may have one shape or another: there is a list of them to try.
    """
    args, kwargs = _pytree.tree_unflatten(list(leaves.values), leaves.spec)
    for n, (name, kind, default) in enumerate(_parameters(operator)):
        value = args[n] if n < len(args) else kwargs.get(name, default)
        is_optional = "Tensor" in kind and ("None" in kind or "Optional[T" in kind)
        if isinstance(value, bool):
            others: list = [not value]
        elif type(value) is float:
            others = [value / 2 or 0.5]
        elif is_optional and (value is None or isinstance(value, Tensor)):
            others = _to_give(leaves) if value is None else [None]
        else:
            continue
        given = [
            Sample((*args[:n], other, *args[n + 1 :]), kwargs)
            if n < len(args)
            else Sample(tuple(args), {**kwargs, name: other})
            for other in others
        ]
        how = "given" if value is None else others[0]
        yield f"{name} {how}", [Leaves.of(each).copies() for each in given]


def _parameters(operator: Callable) -> list[tuple[str, str, Any]]:
    """Name, type and default of each argument, as far as they are known."""
    if func := overload(operator):
        declared = func._schema.arguments
        return [(each.name, str(each.type), each.default_value) for each in declared]
    try:
        known = inspect.signature(operator).parameters.values()
    except (TypeError, ValueError):
        return []
    return [(each.name, str(each.annotation), each.default) for each in known]


def _to_give(leaves: Leaves) -> list[Tensor]:
    """Tensors for an optional argument: a vector for the last dimension, then any."""
    floating = leaves.floating()
    dtype = leaves.values[floating[0]].dtype if floating else torch.get_default_dtype()
    known = [leaves.values[n].detach() for n in floating]
    known += [
        leaves.values[n].to(dtype) for n in leaves.tensors()
    ]  # one for each index
    known = [values.other_values(x) for x in known]
    vectors = [x.flatten()[: x.shape[-1]] for x in known[:1] if x.dim()]
    return [x.clone() for x in (*vectors, *known)]


def annotated(func: Any, leaves: Leaves) -> tuple[set[int], set[int]]:
    """The places that the schema lets it write, and those that a result may alias."""
    writable, aliased = set(), set()
    declared = func._schema.arguments
    keywords = {each.name: each for each in declared}
    for n, name in enumerate(leaves.names):
        kind, which = name.split("[")[0].split(" ", 1)
        given = declared[int(which)] if kind == "argument" else keywords[which]
        if given.alias_info:
            aliased.add(n)
            if given.alias_info.is_write:
                writable.add(n)
    return writable, aliased


def is_pytorchs(operator: Callable) -> bool:
    """Whether it is a function of PyTorch, and no operator of somebody's own."""
    if found := overload(operator):
        return found.namespace in OWN
    if isinstance(operator, torch._ops.OpOverloadPacket):
        return operator._qualified_op_name.split("::")[0] in OWN
    module = getattr(operator, "__module__", None) or ""
    if module.partition(".")[0] == "torch":
        return not hasattr(operator, "_opoverload")
    builtin = type(operator).__name__ in ("builtin_function_or_method",)
    return builtin and "torch" in (module or repr(type(operator.__self__)))


def seed(number: int) -> None:
    """Seed the generators that an operator may draw from."""
    torch.manual_seed(number)
    random.seed(number)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(number)


def facts_of(case: Case) -> Facts:
    """Call a few times, and note what the checks need to know."""
    outcomes, draws = [], False
    for number in (0, 0, *range(1, 9)):
        seed(number)
        was = torch.get_rng_state()
        outcomes.append(case.call(case.leaves.copies()).kept())
        draws = draws or not torch.equal(was, torch.get_rng_state())
        if number == 1 and not draws:
            break  # else it may draw the same by chance
    first, again, *others = outcomes
    is_same = not _differ(first, again)
    case.facts.is_random = is_same and any(_differ(first, each) for each in others)
    written = zip(case.leaves.tensors(), first.values[first.results :], strict=True)
    case.facts.written = tuple(
        n for n, after in written if _bits_differ(after, case.leaves.values[n])
    )
    with contextlib.suppress(Skipped):
        case.facts.calls = tuple(str(func) for func, *_ in case.registered())
    return case.facts


def _differ(first: Outcome, second: Outcome) -> bool:
    pairs = zip(first.values, second.values, strict=True)
    return any(compare.difference(a, b) for a, b in pairs)


def _bits_differ(a: Tensor, b: Tensor) -> bool:
    b = b.detach()
    if not values.is_plain(b) or b.device.type == "meta":
        return False
    b = b.resolve_conj().resolve_neg()
    flat = (x.contiguous().view(-1) for x in (a.resolve_conj().resolve_neg(), b))
    return not torch.equal(*(x.view(torch.uint8) for x in flat))


def _scaled(x: Tensor, factor: Tensor) -> Tensor:
    """As in memory, times a factor that only fp64 can tell from 1."""
    new = values.copied(x)
    try:
        new.copy_((values.in_double(x) * factor).to(x.dtype))
    except RuntimeError:  # elements that share memory
        return x
    return new


class _Calls(TorchDispatchMode):
    """Notes the operators that are called, with copies of what they are given."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace not in OWN:
            given = Leaves.of(Sample(args, kwargs)).copies()
            copy = _pytree.tree_unflatten(list(given.values), given.spec)
            self.found.append((func, tuple(copy[0]), copy[1]))
        return func(*args, **kwargs)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No warnings, nor the one of vmap's loop, which C++ prints: slow is not wrong."""
    functorch = torch._C._functorch
    functorch._set_vmap_fallback_warning_enabled(False)
    # What a fake kernel raises is raised: not printed, too.
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        functorch._set_vmap_fallback_warning_enabled(True)

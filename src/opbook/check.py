"""Find faults of an operator that raise no error.

    python -m opbook.check PACKAGE:OPERATOR PACKAGE:SAMPLES

OPERATOR is a function that calls one operator, or the operator itself, for example
``torch:ops.mine.add``. SAMPLES is a list of tuples of arguments, or a function that
returns one. Each check calls the operator in a way that its author may not have thought
of, and compares with an ordinary call. An operator that raises an exception for such a
call passes the check, because its caller notices. In a test::

    @pytest.mark.parametrize("arguments", SAMPLES)
    def test_nothing_is_silently_wrong(arguments):
        opbook.check.check(mine.add, arguments)
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

Check = Callable[[Callable, tuple], None]
CHECKS: dict[str, Check] = {}
# Of all arguments, for differences one by one, and in a random direction.
FEW_ELEMENTS, MOST_ELEMENTS = 128, 2048


class Skipped(Exception):
    """A check does not apply to an operator or to these arguments."""


class Refused(Exception):
    """The operator raised, so that its caller knows."""


def check(operator: Callable, arguments: Sequence[Any]) -> None:
    """Run all checks on one operator with one tuple of arguments.

    A check that the operator refuses by an exception counts as passed.

    Raises:
        AssertionError: A check found something; the message lists all findings.
    """
    found = [
        f"{name}: {text}"
        for name, verdict, text in results(operator, arguments)
        if verdict == "WRONG"
    ]
    if found:
        raise AssertionError("\n".join(found))


def results(
    operator: Callable, arguments: Sequence[Any]
) -> Iterator[tuple[str, str, str]]:
    """Run all checks; yield the name, the verdict and an explanation of each.

    The verdict is "ok", "refuses" (the operator raised), "WRONG" or "skipped" (the
    check does not apply, for the reason in the explanation).
    """
    for name, run in CHECKS.items():
        try:
            with _quiet():
                run(operator, _copies(arguments))
        except Skipped as why:
            yield name, "skipped", str(why)
        except Refused as why:
            yield name, "refuses", _line(why)
        except Exception as error:
            yield name, "WRONG", _line(error)
        else:
            yield name, "ok", ""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No warnings, nor the one of vmap's loop, which C++ prints: slow is not wrong."""
    functorch = torch._C._functorch
    functorch._set_vmap_fallback_warning_enabled(False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        functorch._set_vmap_fallback_warning_enabled(True)


def _checks(name: str) -> Callable[[Check], Check]:
    def register(run: Check) -> Check:
        CHECKS[name] = run
        return run

    return register


# What the checks share.


def _line(error: BaseException) -> str:
    lines = filter(None, map(str.strip, str(error).splitlines()))
    return next(lines, type(error).__name__)


def _copies(arguments: Iterable[Any]) -> tuple:
    return tuple(a.detach().clone() if isinstance(a, Tensor) else a for a in arguments)


def _tensors(values: Any) -> list[Tensor]:
    return [v for v in _pytree.tree_leaves(values) if isinstance(v, Tensor)]


def _floating(arguments: tuple) -> list[int]:
    return [
        place
        for place, value in enumerate(arguments)
        if isinstance(value, Tensor) and value.is_floating_point()
    ]


def _asked(operator: Callable, *arguments: Any) -> Any:
    """Call it; what it raises is a refusal and no finding."""
    try:
        return operator(*arguments)
    except Exception as error:
        raise Refused(_line(error)) from error


def _close(actual: Any, expected: Any, what: str, **tolerances: float) -> None:
    torch.testing.assert_close(
        actual,
        expected,
        equal_nan=True,
        msg=lambda text: f"{what}: {' '.join(text.split())}",
        **tolerances,
    )


def _storage(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _replaced(arguments: tuple, place: int, value: Any) -> tuple:
    return *arguments[:place], value, *arguments[place + 1 :]


class _Calls(TorchDispatchMode):
    """Notes the operators that are not PyTorch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace not in ("aten", "prim", "prims"):
            # Before the call, which may write to them.
            self.found.append((func, _copies(args), kwargs or {}))
        return func(*args, **(kwargs or {}))


def _registered(operator: Callable, arguments: tuple) -> tuple:
    """The operator that a function calls, and what it passes on."""
    with _Calls() as calls, torch.no_grad():
        _asked(operator, *_copies(arguments))
    if not calls.found:
        raise Skipped("it calls no operator but PyTorch's own")
    return calls.found[0]


def _inputs(operator: Callable, arguments: tuple) -> list[int]:
    """The places to differentiate by, or to map over."""
    try:
        is_mutable = _registered(operator, arguments)[0]._schema.is_mutable
    except Skipped:
        is_mutable = False
    if is_mutable or not (places := _floating(arguments)):
        raise Skipped("it writes to its arguments, or takes no floating-point tensor")
    return places


# The registration.


@_checks("schema")
def _(operator: Callable, arguments: tuple) -> None:
    func, args, kwargs = _registered(operator, arguments)
    torch.library.opcheck(func, args, kwargs, test_utils="test_schema")


@_checks("autograd key")
def _(operator: Callable, arguments: tuple) -> None:
    func, args, kwargs = _registered(operator, arguments)
    for place in _floating(args):
        args[place].requires_grad_()
    torch.library.opcheck(func, args, kwargs, test_utils="test_autograd_registration")


@_checks("fake kernel")
def _(operator: Callable, arguments: tuple) -> None:
    func, args, kwargs = _registered(operator, arguments)
    for place in _floating(args):
        for _layout, view in (("as it is", args[place]), *_layouts(args[place])):
            _promised(func, _replaced(args, place, view), kwargs)
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        low = tuple(
            a.to(dtype) if place in _floating(args) else a
            for place, a in enumerate(args)
        )
        _promised(func, low, kwargs)


def _promised(func: Callable, args: tuple, kwargs: dict) -> None:
    try:
        func(*_copies(args), **kwargs)
    except Exception:  # it refuses the layout or the dtype
        return
    torch.library.opcheck(func, args, kwargs, test_utils="test_faketensor")


# The layout of the arguments.


def _layouts(x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The same numbers at other places in memory."""
    if x.dim() >= 2:
        yield "transposed", x.transpose(0, -1).contiguous().transpose(0, -1)
    if x.dim() >= 1:
        yield "every second element", torch.stack([x, x + 1], -1)[..., 0]
        yield "rows of a wider tensor", torch.cat([x, x], -1)[..., : x.shape[-1]]
        shifted = torch.cat([x.new_zeros(1), x.flatten()])[1:]
        yield "not aligned", shifted.view(x.shape)


@_checks("strides")
def _(operator: Callable, arguments: tuple) -> None:
    expected = _asked(operator, *_copies(arguments))
    refusals, called = [], 0
    for place in _floating(arguments):
        for name, view in _layouts(arguments[place]):
            try:
                actual = _asked(operator, *_replaced(arguments, place, view))
            except Refused as why:
                refusals.append(why)
                continue
            called += 1
            _close(actual, expected, f"argument {place}, {name}")
    if refusals and not called:
        raise refusals[0]


@_checks("two devices")
def _(operator: Callable, arguments: tuple) -> None:
    places = _floating(arguments)
    if len(places) < 2:
        raise Skipped("it takes one tensor")
    refusal = None
    for place in places:
        mixed = _replaced(arguments, place, arguments[place].to("meta"))
        try:
            outputs = _tensors(_asked(operator, *mixed))
        except Refused as why:
            refusal = why
            continue
        if any(each.device.type != "meta" for each in outputs):
            raise AssertionError(f"argument {place} has no data, and the result has")
    if refusal:
        raise refusal


# The result.


@_checks("every element written")
def _(operator: Callable, arguments: tuple) -> None:
    expected = _asked(operator, *_copies(arguments))
    was = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # new memory is filled with NaN
    try:
        actual = _asked(operator, *arguments)
    finally:
        torch.use_deterministic_algorithms(was)
    _close(actual, expected, "in memory that is filled with NaN")


@_checks("changed in between")
def _(operator: Callable, arguments: tuple) -> None:
    memory = {_storage(a) for a in _tensors(arguments)}
    first = _tensors(_asked(operator, *arguments))
    own = [result for result in first if _storage(result) not in memory]
    was = [result.clone() for result in own]
    for place in _floating(arguments):
        arguments[place].mul_(0.5)
    actual = _asked(operator, *arguments)
    _close(own, was, "the result of an earlier call, after another")
    # What is cached by address may know one of these from before, and hardly each.
    for other in [_copies(arguments) for _ in range(8)]:
        expected = _asked(operator, *other)
        _close(actual, expected, "the same tensor, other numbers")


def _is_interpreted(operator: Callable, arguments: tuple) -> bool:
    """Whether it launches a kernel in Triton's interpreter."""
    interpreter = sys.modules.get("triton.runtime.interpreter")
    if interpreter is None:
        return False
    launch, launched = interpreter.GridExecutor.__call__, []

    def note(*values: Any, **options: Any) -> Any:
        launched.append(values)
        return launch(*values, **options)

    with mock.patch.object(interpreter.GridExecutor, "__call__", note):
        _asked(operator, *_copies(arguments))
    return bool(launched)


@_checks("threads")
def _(operator: Callable, arguments: tuple) -> None:
    if _is_interpreted(operator, arguments):
        raise Skipped("Triton's interpreter, not the operator, is for one thread")
    scales = [1 + n / 8 for n in range(8)]
    inputs = []
    for scale in scales:
        scaled = _copies(arguments)
        for place in _floating(scaled):
            scaled[place].mul_(scale)
        inputs.append(scaled)
    expected = [_asked(operator, *_copies(each)) for each in inputs]
    wrong: list[Exception] = []
    begin = threading.Barrier(len(inputs) + 1)

    def run(number: int) -> None:
        begin.wait()
        try:
            for _ in range(20):
                actual = operator(*_copies(inputs[number]))
                _close(actual, expected[number], "eight threads at once")
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(inputs))]
    for thread in threads:
        thread.start()
    was = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # as often as Python can: at any line of an operator
    try:
        begin.wait()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(was)
    if wrong:
        raise wrong[0]


@_checks("half precision")
def _(operator: Callable, arguments: tuple) -> None:
    places = _floating(arguments)
    refusal = None
    for dtype in (torch.bfloat16, torch.float16):
        low, high = _copies(arguments), _copies(arguments)
        for place in places:
            low = _replaced(low, place, low[place].to(dtype))
            high = _replaced(high, place, low[place].float())
        try:
            actual = _asked(operator, *low)
        except Refused as why:
            refusal = why
            continue
        expected = _asked(operator, *high)
        bound = 8 * torch.finfo(dtype).eps
        for a, e in zip(_tensors(actual), _tensors(expected), strict=True):
            if a.dtype == dtype and e.numel():
                scale = bound * e.abs().max().item()
                _close(a.float(), e, f"{dtype} beside fp32", rtol=bound, atol=scale)
    if refusal:
        raise refusal


# Derivatives and transforms.


def _precise(operator: Callable, arguments: tuple) -> tuple[tuple, dict[str, float]]:
    """The arguments in fp64 where the operator takes that, and how exact it then is."""
    double = arguments
    for place in _floating(arguments):
        double = _replaced(double, place, double[place].double())
    try:
        operator(*_copies(double))
    except Exception:
        return arguments, {"eps": 1e-2, "atol": 5e-2, "rtol": 5e-2}
    return double, {}


def _derivatives(name: str, compare: Callable, **options: bool) -> None:
    @_checks(name)
    def run(operator: Callable, arguments: tuple) -> None:
        places = _inputs(operator, arguments)
        count = sum(arguments[place].numel() for place in places)
        if count > MOST_ELEMENTS:
            raise Skipped(f"differences of more than {MOST_ELEMENTS} elements are slow")
        arguments, tolerances = _precise(operator, arguments)
        if tolerances and compare is gradgradcheck:
            raise Skipped("it refuses fp64, and differences in fp32 are too coarse")
        for place in places:
            arguments[place].requires_grad_()
        try:
            # Fast mode is too coarse in fp32. In forward mode it passes arguments that
            # require a gradient, and some operators refuse only those.
            forward = "check_forward_ad" in options
            if forward:
                _with_tangents(operator, arguments)  # refuses before any difference
            slow = tolerances or forward
            fast = count > FEW_ELEMENTS and not slow
            compare(operator, arguments, fast_mode=fast, **options, **tolerances)
        except GradcheckError:
            raise
        except Exception as error:
            raise Refused(_line(error)) from error


def _with_tangents(operator: Callable, arguments: tuple) -> None:
    """One call of those that gradcheck makes in forward mode."""
    with forward_ad.dual_level():
        duals = arguments
        for place, a in enumerate(arguments):
            if isinstance(a, Tensor) and a.requires_grad:
                dual = forward_ad.make_dual(a.detach(), torch.ones_like(a))
                duals = _replaced(duals, place, dual)
        operator(*duals)


def _gradcheck(operator: Callable, arguments: tuple, **options: Any) -> bool:
    """What gradcheck compares, and the gradient that can be differentiated again."""
    gradcheck(operator, arguments, **options)
    given = [a for a in arguments if isinstance(a, Tensor) and a.requires_grad]
    outputs = [o for o in _tensors(operator(*arguments)) if o.requires_grad]
    if not outputs:
        return True
    weights = [torch.rand_like(each) for each in outputs]
    kept: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
    once = torch.autograd.grad(outputs, given, weights, retain_graph=True, **kept)
    again = torch.autograd.grad(outputs, given, weights, create_graph=True, **kept)
    try:
        bounds = {k: options.get(k, 1e-4) for k in ("rtol", "atol")}
        _close(again, once, "with create_graph=True", **bounds)
    except AssertionError as error:
        raise GradcheckError(str(error)) from None
    return True


_derivatives("gradient", _gradcheck)
_derivatives("second derivative", gradgradcheck)
_derivatives("forward mode", gradcheck, check_forward_ad=True, check_backward_ad=False)


@_checks("vmap")
def _(operator: Callable, arguments: tuple) -> None:
    places = _inputs(operator, arguments)
    scales = torch.tensor([1.0, 0.5, -0.25])
    stacked, single = arguments, [arguments] * len(scales)
    for place in places:
        rows = [(arguments[place] * s).to(arguments[place].dtype) for s in scales]
        stacked = _replaced(stacked, place, torch.stack(rows))
        single = [_replaced(s, place, r) for s, r in zip(single, rows, strict=True)]
    dims = tuple(0 if place in places else None for place in range(len(arguments)))
    actual = _asked(torch.vmap(operator, in_dims=dims), *stacked)
    expected = [_asked(operator, *each) for each in single]
    for number, each in enumerate(expected):
        mapped = _pytree.tree_map(
            lambda a, n=number: a[n] if isinstance(a, Tensor) else a, actual
        )
        _close(mapped, each, f"row {number} of vmap")


@_checks("torch.compile")
def _(operator: Callable, arguments: tuple) -> None:
    expected = _asked(operator, *_copies(arguments))

    def call(*inputs: Any) -> Any:
        return operator(*inputs)

    for dynamic in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(
            call, backend="aot_eager", dynamic=dynamic, fullgraph=True
        )
        actual = _asked(compiled, *_copies(arguments))
        _close(actual, expected, f"compiled, dynamic={dynamic}")


# The command.


def named(path: str) -> Any:
    """What ``package.module:name.of.it`` stands for."""
    module, _, names = path.partition(":")
    found = importlib.import_module(module)
    for name in filter(None, names.split(".")):
        found = getattr(found, name)
    return found


def show(operator: Callable, samples: Iterable[Sequence[Any]]) -> int:
    """Print each check's worst verdict over all samples; return how many are wrong."""
    wrong = 0
    verdicts: dict[str, list[tuple[str, str]]] = {name: [] for name in CHECKS}
    for arguments in samples:
        for name, verdict, text in results(operator, arguments):
            verdicts[name].append((verdict, text))
    for name, found in verdicts.items():
        order = ("WRONG", "refuses", "ok", "skipped")
        verdict, text = min(found, key=lambda each: order.index(each[0]))
        wrong += verdict == "WRONG"
        print(f"{name:22}{verdict:9}{text[:90]}".rstrip())
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line; the exit status says whether something is wrong."""
    parser = argparse.ArgumentParser(prog="opbook.check", description=__doc__)
    parser.add_argument("operator", help="package.module:name")
    parser.add_argument("samples", help="package.module:name of a list or a function")
    chosen = parser.parse_args(arguments)
    sys.path.insert(0, "")  # modules of the current folder, as with python -c
    samples = named(chosen.samples)
    return int(
        show(named(chosen.operator), samples() if callable(samples) else samples) > 0
    )


if __name__ == "__main__":
    sys.exit(main())

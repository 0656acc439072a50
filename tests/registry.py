"""The operators of the library and how to call them, for the tests that run each.

Nothing is listed here. The functions are those of ``opbook.__all__``, the operators
those of ``torch.ops.opbook``. ``SAMPLES`` of a function's own test says with which
arguments it is called; those of an operator are seen when the functions are called.
"""

import importlib
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import opbook
from eager import SIZES, Sample, results

FUNCTIONS = opbook.__all__


def file_of(function: str) -> str:
    """The function's own test."""
    return f"tests/test_{function.rstrip('_')}.py"


@cache
def sample(function: str) -> Sample:
    """The one in the file of the function's test.

    Raises:
        LookupError: There is none; the message has the line to add.
    """
    file = Path(file_of(function))
    if not Path(__file__).with_name(file.name).exists():
        raise LookupError(f"opbook.{function} has no test: write {file}")
    samples = getattr(importlib.import_module(file.stem), "SAMPLES", {})
    if function not in samples:
        arguments = ", ".join(f"{each}=..." for each in parameters(function))
        raise LookupError(
            f"opbook.{function} has no sample: add to SAMPLES of {file} the line\n"
            f'    "{function}": Sample(eager, {arguments}),'
        )
    return samples[function]


NOT_IN_PLACE = [  # functions that write to no argument
    name
    for name in FUNCTIONS
    if not getattr(torch.ops.opbook, name).default._schema.is_mutable
]


def parameters(function: str) -> dict[str, inspect.Parameter]:
    """The parameters of a function, by name."""
    return dict(inspect.signature(getattr(opbook, function)).parameters)


ARGUMENTS = [  # each function with each of its arguments that are tensors
    f"{name} {key}"
    for name in FUNCTIONS
    for key, parameter in parameters(name).items()
    if "Tensor" in str(parameter.annotation)
]


def argument(function: str, name: str) -> tuple[Sample, int]:
    """A function's sample, and the place of an argument that is a tensor in it."""
    found = sample(function)
    if not isinstance(found.arguments.get(name), tuple):
        raise LookupError(
            f"the sample of opbook.{function} in SAMPLES of {file_of(function)} has no "
            f'tensor {name}: add it, such as {name}=("rows", "hidden")'
        )
    return found, [*found.arguments].index(name)


def of_argument(argument_of: str, device: str) -> tuple[Callable, Tensor]:
    """A function of one tensor, the others as a sample has them; and that tensor.

    Args:
        argument_of: An entry of ``ARGUMENTS``, such as ``"rms_norm weight"``.
        device: Where the arguments are.
    """
    function, name = argument_of.split()
    found, place = argument(function, name)
    args = found.made(lambda shape: torch.randn(shape, device=device))
    before, after = args[:place], args[place + 1 :]

    def call(x: Tensor) -> Tensor:
        return results(getattr(opbook, function)(*before, x, *after))[0]

    return call, args[place]


# Operators, by schema and by the calls of the functions ------------------------------

SCHEMAS = {
    each.name.removeprefix("opbook::"): each
    for each in torch._C._jit_get_all_schemas()
    if each.name.startswith("opbook::")
}
OPERATORS = sorted(SCHEMAS)
OPERANDS = [  # each operator with each of its arguments that are tensors
    f"{name} {argument.name}"
    for name in OPERATORS
    for argument in SCHEMAS[name].arguments
    if argument.type.kind() == "TensorType" or str(argument.type) == "Optional[Tensor]"
]


class Calls(TorchDispatchMode):
    """Keeps the arguments of each call of an operator of the library."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, list[tuple]] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "opbook":
            kept = (a.detach().clone() if isinstance(a, Tensor) else a for a in args)
            self.seen.setdefault(func._opname, []).append(tuple(kept))
        return func(*args, **(kwargs or {}))


@cache
def calls() -> dict[str, list[tuple]]:
    """With which arguments the samples, and their gradients, call each operator."""
    with torch.random.fork_rng(devices=[]), Calls() as noted:
        for function in FUNCTIONS:
            call = getattr(opbook, function)
            call(*sample(function).made(torch.randn))
            with_gradient(function)
    return noted.seen


def with_gradient(
    function: str, device: str = "cpu", sizes: dict[str, int] = SIZES
) -> list[Tensor]:
    """Call the function with a sample; return its results, and the gradients of all."""
    arguments = sample(function).made(lambda shape: leaf(shape, device), sizes)
    # What is written to may not be a leaf.
    call = [a.clone() if isinstance(a, Tensor) else a for a in arguments]
    found = results(getattr(opbook, function)(*call))
    sum(r.sum() for r in found).backward()
    return [*found, *(a.grad for a in arguments if isinstance(a, Tensor))]


def leaf(shape: list[int], device: str) -> Tensor:
    """A random tensor that requires a gradient."""
    return torch.randn(shape, device=device, requires_grad=True)


def arguments(operator: str, operand: str | None = None, device: str = "cpu") -> list:
    """The arguments of a call in which ``operand`` is a tensor."""
    names = [argument.name for argument in SCHEMAS[operator].arguments]
    index = names.index(operand) if operand else 0
    for seen in calls().get(operator, ()):
        if len(seen) > index and isinstance(seen[index], Tensor):
            return [a.to(device) if isinstance(a, Tensor) else a for a in seen]
    what = f"with a tensor as {operand}" if operand else "at all"
    raise LookupError(
        f"no sample calls opbook::{operator} {what}. Is the function that calls it in "
        "__all__ of src/opbook/__init__.py? Then add the argument to its sample, in "
        "SAMPLES of its own test in tests/"
    )


def split(operand: str) -> tuple[str, str, int]:
    """An operator, the name of one of its arguments, and its place."""
    operator, argument = operand.split()
    names = [each.name for each in SCHEMAS[operator].arguments]
    return operator, argument, names.index(argument)


def first_result(operator: str, *args: object) -> Tensor:
    """Call an operator; of one that returns nothing, return what it wrote to."""
    written = [
        each.alias_info is not None and each.alias_info.is_write
        for each in SCHEMAS[operator].arguments
    ]
    args = [
        each.clone() if is_written and isinstance(each, Tensor) else each
        for each, is_written in zip(args, written, strict=False)
    ]
    returned = getattr(torch.ops.opbook, operator)(*args)
    return args[written.index(True)] if returned is None else results(returned)[0]


def of_operand(operand: str, device: str) -> tuple[Callable, Tensor]:
    """A function of one argument, the others as a sample has them; and that argument.

    Args:
        operand: An entry of ``OPERANDS``, such as ``"rms_norm weight"``.
        device: Where the arguments are.
    """
    operator, argument, place = split(operand)
    args = arguments(operator, argument, device)
    before, after = args[:place], args[place + 1 :]
    return lambda x: first_result(operator, *before, x, *after), args[place]

"""What holds for each operator of the library, written in C++ and registered.

The operators and their arguments are those of registry.py.
"""

import ctypes
import functools
import re
import shutil
import subprocess
import sys

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import opbook
import registry
from eager import assert_close, outcome, results
from opbook import _C

every_operator = pytest.mark.parametrize("name", registry.OPERATORS)
every_operand = pytest.mark.parametrize("operand", registry.OPERANDS)


@every_operand
def test_a_sample_calls_every_operator(operand):
    """With each argument: a failure says which sample to add to which file."""
    call, x = registry.of_operand(operand, "cpu")
    assert isinstance(call(x), Tensor)


# [parts]
PARTS = {
    "CPU": "STABLE_TORCH_LIBRARY_IMPL in its csrc/NAME/NAME_op.cpp",
    "Meta": "torch.library.register_fake in its src/opbook/ops/NAME.py",
    "Autograd": "opbook.forward_mode.register_autograd in its src/opbook/ops/NAME.py",
}


@pytest.mark.parametrize("key", PARTS)
@every_operator
def test_every_part_is_registered(name, key):
    there = torch._C._dispatch_has_kernel_for_dispatch_key(f"opbook::{name}", key)
    assert there, f"opbook::{name} has no kernel for {key}: write {PARTS[key]}"


@every_operator
def test_opcheck(name):
    operator = getattr(torch.ops.opbook, name).default
    torch.library.opcheck(operator, tuple(registry.arguments(name)))


# [/parts]


# Derivatives --------------------------------------------------------------------------


def by_dual_level(function, x):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, x)))


FORWARD_MODE = {
    "dual_level": by_dual_level,
    "jvp": lambda function, x: torch.func.jvp(function, (x,), (x,)),
    "jacfwd": lambda function, x: torch.func.jacfwd(function)(x),
    "nested_jvp": lambda function, x: torch.func.jvp(
        lambda y: torch.func.jvp(lambda z: z.sum() * function(y), (x,), (x,))[0],
        (x,),
        (x,),
    ),
}
REVERSE_MODE = {
    "grad": lambda function, x: torch.func.grad(lambda y: function(y).sum())(x),
    "vjp": lambda function, x: torch.func.vjp(function, x),
    "jacrev": lambda function, x: torch.func.jacrev(function)(x),
    "hessian": lambda function, x: torch.func.hessian(lambda y: function(y).sum())(x),
}


@pytest.mark.parametrize("how", FORWARD_MODE)
@every_operand
def test_forward_mode_is_refused_by_name(device, operand, how):
    call, x = registry.of_operand(operand, device)
    words = f"opbook::{operand.split()[0]} has no forward-mode"
    with pytest.raises(NotImplementedError, match=words):
        FORWARD_MODE[how](call, x)


@pytest.mark.parametrize("how", REVERSE_MODE)
@every_operand
def test_torch_func_is_refused_by_name(device, operand, how):
    call, x = registry.of_operand(operand, device)
    name = operand.split()[0]
    if registry.SCHEMAS[name].is_mutable:
        # In place, copy_ of another operator's result does what concerns autograd.
        name = rf"{name.rstrip('_')}\w*"
    words = f"opbook::{name} cannot be differentiated by torch.func"
    with pytest.raises(NotImplementedError, match=words):
        REVERSE_MODE[how](call, x)


@every_operand
def test_what_nobody_differentiates_is_computed_in_forward_mode(device, operand):
    call, x = registry.of_operand(operand, device)
    expected = call(x)
    result, tangents = torch.func.jvp(lambda y: y + call(x).sum(), (x,), (x,))
    torch.testing.assert_close(result, x + expected.sum())
    assert tangents.equal(x)
    with forward_ad.dual_level():
        assert call(x).equal(expected)


# vmap itself refuses an operator that returns nothing.
@pytest.mark.parametrize(
    "operand",
    [each for each in registry.OPERANDS if registry.SCHEMAS[each.split()[0]].returns],
)
def test_forward_mode_of_vmap_is_refused_by_name(device, operand):
    call, x = registry.of_operand(operand, device)
    name = operand.split()[0]
    with pytest.raises(NotImplementedError, match=f"{name} has no forward-mode"):
        torch.func.jvp(torch.vmap(call), (x[None],), (x[None],))


@every_operator
def test_compiled_forward_mode_is_refused_by_name(device, fresh_compiler, name):
    operand = [each for each in registry.OPERANDS if each.split()[0] == name][-1]
    call, x = registry.of_operand(operand, device)

    def tangents(x):
        return torch.func.jvp(call, (x,), (x,))[1]

    with pytest.raises(Exception, match=f"opbook::{name} has no forward-mode"):
        torch.compile(tangents, backend="eager", fullgraph=True)(x)


def test_forward_mode_of_eps_is_refused(device):
    eps = torch.tensor(0.1, device=device)
    with forward_ad.dual_level(), pytest.raises(TypeError, match="eps must be"):
        opbook.rms_norm(
            torch.ones(2, device=device), None, forward_ad.make_dual(eps, eps)
        )


# Errors -------------------------------------------------------------------------------


@every_operator
def test_the_message_begins_with_the_operator(device, name):
    args = registry.arguments(name, device=device)
    whole = [a.int() if isinstance(a, Tensor) else a for a in args]
    error = outcome(registry.first_result, name, *whole)
    found = re.match(r"opbook::(\w+): expected .*Int", str(error))
    assert found, error
    assert name.startswith(found[1])


@pytest.mark.parametrize("name", registry.NOT_IN_PLACE)
def test_a_result_too_large_for_memory(name):
    sample = registry.sample(name)
    first, *rest = sample.made(torch.ones)
    huge = first[:1].expand(2**56, *first.shape[1:])  # no address space has room for it
    args = [huge]
    for each in rest:
        is_same = isinstance(each, Tensor) and each.shape == first.shape
        args.append(huge if is_same else each)
    actual = str(outcome(getattr(opbook, name), *args))
    assert re.match(rf"opbook::{name}: aten::\w+ failed for shape \[{2**56}, ", actual)
    if torch.__version__ >= (2, 13):  # older ones write the reason to stderr
        assert str(outcome(sample.eager, *args)).partition("\n")[0] in actual


LAYOUTS = {
    "sparse": lambda x: x.to_sparse(),
    "sparse_csr": lambda x: torch.atleast_2d(x).to_sparse_csr(),
    "jagged": lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged),
    "nested": lambda x: torch.nested.nested_tensor([x, x]),
}


def parts(value) -> list[Tensor]:
    """Dense tensors of the same values."""
    found = []
    for each in results(value):
        found += each.unbind() if each.is_nested else [each]
    return [each.to_dense() if each.layout != torch.strided else each for each in found]


@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:The PyTorch API of nested")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("argument", registry.ARGUMENTS)
def test_another_layout_is_refused_by_name_or_is_pytorchs(device, argument, layout):
    name, argument = argument.split()
    sample, place = registry.argument(name, argument)
    args = sample.made(lambda shape: torch.randn(shape, device=device))
    args[place] = LAYOUTS[layout](args[place])
    actual, expected = (
        outcome(getattr(opbook, name), *args),
        outcome(sample.eager, *args),
    )
    if isinstance(actual, Exception):
        # What goes on to PyTorch's own operators has their words.
        refusal = f"opbook.{name}: {argument} must be strided"
        assert str(actual).startswith(refusal) or str(actual) == str(expected)
        return
    for got, want in zip(parts(actual), parts(expected), strict=True):
        assert_close(got, want)


# Memory -------------------------------------------------------------------------------


class Mallinfo(ctypes.Structure):
    """What glibc's mallinfo2() returns: sizes in bytes."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks "
        "fordblks keepcost".split()
    )


def bytes_in_use() -> int:
    """What malloc has handed out to this thread, and nobody has freed."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Mallinfo
    return mallinfo().uordblks


LEAKS = {
    f"gradient of {name}": functools.partial(registry.with_gradient, name)
    for name in registry.FUNCTIONS
}


def in_another_dtype(operand: str) -> None:
    """Call the operator, which converts the argument or raises."""
    call, x = registry.of_operand(operand, "cpu")
    call(x)
    outcome(call, x.double())


LEAKS |= {
    operand: functools.partial(in_another_dtype, operand)
    for operand in registry.OPERANDS
}


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33 or newer"
)
@pytest.mark.parametrize("name", LEAKS)
def test_no_call_leaks(name):
    calls = 300

    def growth() -> int:
        before = bytes_in_use()
        for _ in range(calls):
            LEAKS[name]()
        return bytes_in_use() - before

    growth()  # what the first calls allocate stays
    # The smallest block of malloc is 24 bytes; Python's caches grow now and then.
    assert min(growth() for _ in range(3)) < 8 * calls


# The library --------------------------------------------------------------------------


def test_a_second_copy_of_the_library_is_an_import_error(tmp_path):
    """Left to PyTorch, the second registration of an operator ends the process."""
    copy = shutil.copy(_C.__file__, tmp_path / "_C.so")
    program = f"import torch; torch.ops.load_library({str(copy)!r}); import opbook"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    assert "ImportError: cannot load " in done.stderr
    assert "another copy of opbook has registered its operators" in done.stderr

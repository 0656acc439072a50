"""What holds for each operator of the library, written in C++ and registered."""

import ctypes
import re
import shutil
import subprocess
import sys

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import opbook
from eager import outcome
from opbook import _C
from test_support import SAMPLES

OPS = torch.ops.opbook


def in_place(x: Tensor) -> Tensor:
    """rms_norm_, which returns nothing, on a tensor of its own."""
    x = x.clone()
    OPS.rms_norm_(x)
    return x


def fixed(x: Tensor, *shape: int) -> Tensor:
    """Another operand, which nobody differentiates."""
    return torch.linspace(-1, 1, 8, dtype=torch.float32).to(x.device).expand(shape)


# A square matrix of 8 rows to one result, for each operator of the namespace.
CALLS = {
    "add_rms_norm": lambda x: OPS.add_rms_norm(fixed(x, 8, 8), x, None, 0.1)[0],
    "add_rms_norm_forward": lambda x: OPS.add_rms_norm_forward(x, x)[0],
    "linear_gelu": lambda x: OPS.linear_gelu(x, fixed(x, 4, 8), fixed(x, 8)[:4], True),
    "linear_gelu_for_backward": lambda x: OPS.linear_gelu_for_backward(x, x)[0],
    "rms_norm": lambda x: OPS.rms_norm(x, fixed(x, 8)),
    "rms_norm_": in_place,
    "rms_norm_backward": lambda x: OPS.rms_norm_backward(
        fixed(x, 8, 8), x, fixed(x, 8).double(), fixed(x, 8), True, True
    )[0],
    "rms_norm_forward": lambda x: OPS.rms_norm_forward(x, fixed(x, 8).double())[0],
}
every_operator = pytest.mark.parametrize("name", CALLS)


def matrix(device: str) -> Tensor:
    return torch.randn(8, 8, device=device)


def test_every_operator_is_called():
    schemas = torch._C._jit_get_all_schemas()
    names = {each.name for each in schemas if each.name.startswith("opbook::")}
    assert names == {f"opbook::{name}" for name in CALLS}


# Derivatives --------------------------------------------------------------------------


def by_dual_level(function, x):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, x)))


FORWARD_MODE = {
    "dual_level": by_dual_level,
    "jvp": lambda function, x: torch.func.jvp(function, (x,), (x,)),
    "jacfwd": lambda function, x: torch.func.jacfwd(function)(x),
    "nested_jvp": lambda function, x: torch.func.jvp(
        lambda y: torch.func.jvp(lambda z: z * function(y), (x,), (x,))[0], (x,), (x,)
    ),
}
REVERSE_MODE = {
    "grad": lambda function, x: torch.func.grad(lambda y: function(y).sum())(x),
    "vjp": lambda function, x: torch.func.vjp(function, x),
    "jacrev": lambda function, x: torch.func.jacrev(function)(x),
    "hessian": lambda function, x: torch.func.hessian(lambda y: function(y).sum())(x),
}


@pytest.mark.parametrize("how", FORWARD_MODE)
@every_operator
def test_forward_mode_is_refused_by_name(device, name, how):
    with pytest.raises(
        NotImplementedError, match=f"opbook::{name} has no forward-mode"
    ):
        FORWARD_MODE[how](CALLS[name], matrix(device))


@pytest.mark.parametrize("how", REVERSE_MODE)
@every_operator
def test_torch_func_is_refused_by_name(device, name, how):
    # In place, copy_ of another operator's result does what concerns autograd.
    refusing = "rms_norm_forward" if name == "rms_norm_" else name
    words = f"opbook::{refusing} cannot be differentiated by torch.func"
    with pytest.raises(NotImplementedError, match=words):
        REVERSE_MODE[how](CALLS[name], matrix(device))


@every_operator
def test_what_nobody_differentiates_is_computed_in_forward_mode(device, name):
    x = matrix(device)
    expected = CALLS[name](x)
    results, tangents = torch.func.jvp(lambda y: y + CALLS[name](x).sum(), (x,), (x,))
    torch.testing.assert_close(results, x + expected.sum())
    assert tangents.equal(x)
    with forward_ad.dual_level():
        assert CALLS[name](x).equal(expected)


# vmap itself refuses rms_norm_, which returns nothing.
@pytest.mark.parametrize("name", [name for name in CALLS if name != "rms_norm_"])
def test_forward_mode_of_vmap_is_refused_by_name(device, name):
    x = matrix(device)[None]
    with pytest.raises(NotImplementedError, match=f"{name} has no forward-mode"):
        torch.func.jvp(torch.vmap(CALLS[name]), (x,), (x,))


@every_operator
def test_compiled_forward_mode_is_refused_by_name(device, fresh_compiler, name):
    def tangents(x):
        return torch.func.jvp(CALLS[name], (x,), (x,))[1]

    with pytest.raises(Exception, match=f"opbook::{name} has no forward-mode"):
        torch.compile(tangents, backend="eager", fullgraph=True)(matrix(device))


def test_forward_mode_of_eps_is_refused(device):
    eps = torch.tensor(0.1, device=device)
    with forward_ad.dual_level(), pytest.raises(TypeError, match="eps must be"):
        opbook.rms_norm(matrix(device), None, forward_ad.make_dual(eps, eps))


# Errors -------------------------------------------------------------------------------


@every_operator
def test_the_message_begins_with_the_operator(device, name):
    error = outcome(CALLS[name], torch.ones(8, 8, device=device, dtype=torch.int32))
    found = re.match(r"opbook::(\w+): expected .*Int", str(error))
    assert found, error
    assert name.startswith(found[1])


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "rms_norm_"])
def test_a_result_too_large_for_memory(name):
    sample = SAMPLES[name]
    first, *rest = (torch.ones(shape) for shape in sample.shapes)
    huge = first[:1].expand(2**56, -1)  # no address space has room for its result
    args = [huge, *(huge if t.shape == first.shape else t for t in rest)]
    actual = str(outcome(getattr(opbook, name), *args))
    assert re.match(rf"opbook::{name}: aten::\w+ failed for shape \[{2**56}, ", actual)
    if torch.__version__ >= (2, 13):  # older ones write the reason to stderr
        assert str(outcome(sample.eager, *args)).partition("\n")[0] in actual


LAYOUTS = {
    "sparse": lambda x: x.to_sparse(),
    "sparse_csr": lambda x: x.to_sparse_csr(),
    "jagged": lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged),
    "nested": lambda x: torch.nested.nested_tensor([x, x]),
}
ARGUMENTS = {
    "opbook.add_rms_norm: input": lambda x: opbook.add_rms_norm(x, x),
    "opbook.add_rms_norm: residual": lambda x: opbook.add_rms_norm(fixed(x, 8, 8), x),
    "opbook.rms_norm: input": opbook.rms_norm,
    "opbook.rms_norm: weight": lambda x: opbook.rms_norm(fixed(x, 8, 8), x),
    "opbook.rms_norm_: input": opbook.rms_norm_,
}


@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:The PyTorch API of nested")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_another_layout_is_refused_by_name(device, argument, layout):
    tensor = LAYOUTS[layout](matrix(device))
    with pytest.raises(NotImplementedError, match=f"^{argument} must be strided"):
        ARGUMENTS[argument](tensor)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
@pytest.mark.parametrize("layout", ["jagged", "nested"])
def test_linear_gelu_of_a_nested_tensor_is_pytorchs(device, layout):
    x, weight = matrix(device), torch.randn(4, 8, device=device)
    got = opbook.linear_gelu(LAYOUTS[layout](x), weight)
    for part in got.unbind():
        torch.testing.assert_close(part, SAMPLES["linear_gelu"].eager(x, weight))


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


def with_gradient(function):
    def step(x):
        leaf = x.detach().requires_grad_()
        function(leaf).sum().backward()

    return step


LEAKS = CALLS | {
    "gradient of add_rms_norm": with_gradient(lambda x: opbook.add_rms_norm(x, x)[0]),
    "gradient of linear_gelu": with_gradient(
        lambda x: opbook.linear_gelu(x, x, None, "tanh")
    ),
    "gradient of rms_norm": with_gradient(lambda x: opbook.rms_norm(x, x[0])),
}


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33 or newer"
)
@pytest.mark.parametrize("name", LEAKS)
def test_no_call_leaks(name):
    x, calls = matrix("cpu"), 300

    def growth() -> int:
        before = bytes_in_use()
        for _ in range(calls):
            LEAKS[name](x)
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

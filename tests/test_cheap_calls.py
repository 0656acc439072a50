"""Interfaces go past the dispatcher's autograd kernel, and nothing is lost by it."""

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import opbook
import registry
from called import Called
from opbook.forward_mode import register_autograd
from opbook.overrides import override

# Each tensor that an interface takes.
every_argument = pytest.mark.parametrize(
    "argument",
    [each for each in registry.ARGUMENTS if each.split()[0] in registry.NOT_IN_PLACE],
)
both = pytest.mark.parametrize("requires_grad", [False, True])


def matrix(device: str, *, requires_grad: bool = False) -> Tensor:
    return torch.randn(8, 8, device=device, requires_grad=requires_grad)


def gradient(function, x: Tensor) -> Tensor:
    leaf = x.detach().requires_grad_()
    (found,) = torch.autograd.grad(function(leaf).sin().sum(), leaf)
    return found


# What is saved ------------------------------------------------------------------------


def noting_overrides(names: list[str]):
    def kernel(original, *args):
        names.append("autograd")
        return original(*args)

    return kernel


def test_a_plain_call_runs_no_autograd_kernel():
    x, passed = matrix("cpu"), []
    with override("opbook::rms_norm", noting_overrides(passed), "AutogradCPU"):
        opbook.rms_norm(x)
        assert not passed
        torch.ops.opbook.rms_norm(x)
    assert passed == ["autograd"]


def test_a_call_with_a_gradient_runs_no_autograd_kernel():
    x, passed = matrix("cpu", requires_grad=True), []
    kernel = noting_overrides(passed)
    with (
        override("opbook::rms_norm_forward", kernel, "AutogradCPU"),
        override("opbook::rms_norm_backward", kernel, "AutogradCPU"),
    ):
        opbook.rms_norm(x).sum().backward()
    assert not passed


# What is not lost ---------------------------------------------------------------------


@every_argument
def test_a_gradient_is_that_of_the_operator(device, fresh_compiler, argument):
    """The operator itself, which torch.compile sees, does not go this way."""
    call, x = registry.of_argument(argument, device)
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(
        gradient(call, x), gradient(compiled, x), rtol=1e-4, atol=1e-5
    )


TRANSFORMS = {
    "grad": lambda f, x: torch.func.grad(lambda y: f(y).sum())(x),
    "vjp": lambda f, x: torch.func.vjp(f, x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x,)),
    "jacfwd": lambda f, x: torch.func.jacfwd(f)(x),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@every_argument
def test_derivatives_of_torch_func_are_refused_by_name(device, argument, transform):
    call, x = registry.of_argument(argument, device)
    words = r"^opbook::\w+ (has no forward-mode|cannot be differentiated by torch.func)"
    with pytest.raises(NotImplementedError, match=words):
        TRANSFORMS[transform](call, x)


@both
@every_argument
def test_tangents_are_refused_by_name(device, argument, requires_grad):
    call, x = registry.of_argument(argument, device)
    x.requires_grad_(requires_grad)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(NotImplementedError, match="has no forward-mode"):
            call(dual)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@every_argument
def test_vmap_is_a_loop(device, argument):
    call, x = registry.of_argument(argument, device)
    batch = torch.randn(3, *x.shape, device=device)
    expected = torch.stack([call(each) for each in batch])
    torch.testing.assert_close(torch.vmap(call)(batch), expected)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@every_argument
def test_gradients_in_batches(device, argument):
    call, x = registry.of_argument(argument, device)
    output = call(x.requires_grad_())
    grads = torch.randn(3, *output.shape, device=device)
    (batched,) = torch.autograd.grad(
        output, x, grads, retain_graph=True, is_grads_batched=True
    )
    for grad, got in zip(grads, batched, strict=True):
        (want,) = torch.autograd.grad(output, x, grad, retain_graph=True)
        torch.testing.assert_close(got, want)


class Holder(Tensor):
    """Has no gradient itself, and holds a tensor that has one."""

    @staticmethod
    def __new__(cls, value: Tensor):
        return value.detach().clone().as_subclass(cls)

    def __init__(self, value: Tensor):
        self.value = value

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        plain = [a.value if isinstance(a, Holder) else a for a in args]
        with torch._C.DisableTorchFunctionSubclass():
            return function(*plain, **(kwargs or {}))


@every_argument
def test_what_a_subclass_holds_gets_its_gradient(device, argument):
    call, held = registry.of_argument(argument, device)
    held.requires_grad_()
    (found,) = torch.autograd.grad(call(Holder(held)).sin().sum(), held)
    torch.testing.assert_close(found, gradient(call, held))


class Swap(TorchFunctionMode):
    """Calls operators with another first argument."""

    def __init__(self, first: Tensor):
        super().__init__()
        self.first = first

    def __torch_function__(self, function, types, args=(), kwargs=None):
        ours = isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket)
        args = (self.first, *args[1:]) if ours else args
        return function(*args, **(kwargs or {}))


def test_what_a_mode_brings_gets_its_gradient(device):
    brought = matrix(device, requires_grad=True)
    with Swap(brought):
        output = opbook.rms_norm(matrix(device))
    (found,) = torch.autograd.grad(output.sin().sum(), brought)
    torch.testing.assert_close(found, gradient(opbook.rms_norm, brought))


@both
@every_argument
def test_a_dispatch_mode_sees_the_operator(device, argument, requires_grad):
    call, x = registry.of_argument(argument, device)
    with Called() as called:
        call(x.requires_grad_(requires_grad))
    name = argument.split()[0]
    assert any(op.startswith(f"opbook::{name}") for op in called.names)


def test_what_left_torch_func_keeps_its_gradient(device):
    left = []

    def keep(x):
        left.append(2 * x)
        return x.sum()

    x, weight = matrix(device, requires_grad=True), matrix(device)[0].requires_grad_()
    torch.func.grad(keep)(x)
    found = torch.autograd.grad(opbook.rms_norm(*left, weight).sum(), (x, weight))
    output = torch.nn.functional.rms_norm(2 * x, (8,), weight)
    expected = torch.autograd.grad(output.sum(), (x, weight))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", ["Tensor[] x", "Tensor?[] x", "*, Tensor x"])
def test_arguments_that_would_lose_their_gradient_are_refused(kind):
    with torch.library._scoped_library("unfit", "FRAGMENT") as library:
        library.define(f"operator({kind}) -> Tensor")
        with pytest.raises(ValueError, match=r"unfit::operator: .* takes no"):
            register_autograd("unfit::operator", None)


@pytest.mark.filterwarnings("ignore:`torch.jit", "ignore:.*jit.trace")
@both
def test_a_trace_has_the_operator(device, requires_grad):
    x, weight = matrix(device), matrix(device)[0].requires_grad_(requires_grad)
    traced = torch.jit.trace(opbook.rms_norm, (x, weight), check_trace=False)
    kinds = [node.kind() for node in traced.graph.nodes()]
    assert any(kind.startswith("opbook::rms_norm") for kind in kinds), kinds
    torch.testing.assert_close(traced(2 + x, weight), opbook.rms_norm(2 + x, weight))


@every_argument
def test_checkpointing(device, argument):
    call, x = registry.of_argument(argument, device)

    def again(y):
        return checkpoint(call, y, use_reentrant=False)

    torch.testing.assert_close(gradient(again, x), gradient(call, x))


@every_argument
def test_second_derivatives(device, argument):
    call, x = registry.of_argument(argument, device)
    (first,) = torch.autograd.grad(
        call(x.requires_grad_()).sin().sum(), x, create_graph=True
    )
    assert first.requires_grad
    torch.testing.assert_close(first, gradient(call, x))


# What cannot be registered ------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "argument"),
    [("(Tensor x, *, int n) -> Tensor", "n"), ("(Tensor[] parts) -> Tensor", "parts")],
)
def test_an_argument_that_register_autograd_does_not_take_is_named(schema, argument):
    library = torch.library.Library("refused", "FRAGMENT")
    library.define(f"operator{schema}")
    message = f"^refused::operator: .*, but {argument} is one: use torch.library"
    with pytest.raises(ValueError, match=message):
        register_autograd("refused::operator", None)

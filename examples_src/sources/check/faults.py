"""Operators that are wrong and raise no error; each is found by the check it names."""
# ruff: noqa: D103 - the names of the functions say what is wrong

import time
from collections.abc import Callable

import torch
from torch import Tensor

FAULTS: dict[str, tuple[str, Callable, tuple]] = {}


def found_by(check: str, *arguments) -> Callable:
    """Note which check has to find the operator, and with which arguments."""

    def note(operator: Callable) -> Callable:
        name = getattr(operator, "__name__", None) or operator._qualname.split("::")[1]
        FAULTS[name.replace("_", " ")] = check, operator, arguments
        return operator

    return note


def operator(fake: Callable | None = None, mutates: tuple[str, ...] = ()) -> Callable:
    """Register a function as an operator with this fake kernel."""

    def register(function: Callable) -> Callable:
        made = torch.library.custom_op(
            f"faults::{function.__name__}", mutates_args=mutates
        )
        made = made(function)
        made.register_fake(fake or (lambda x, *_: torch.empty_like(x)))
        return made

    return register


def doubled(op: Callable) -> Callable:
    """Register the right gradient of 2 x."""
    op.register_autograd(lambda ctx, grad: 2 * grad)
    return op


X = torch.linspace(-2, 2, 24).reshape(4, 6)
PAIR = X, X.flip(0).contiguous()


def flat(x: Tensor) -> Tensor:
    """All of the memory from the first element on, whatever the strides are."""
    return x.as_strided((x.numel(),), (1,))


# Layouts ----------------------------------------------------------------------------


@found_by("strides", X)
@doubled
@operator(lambda x: x.new_empty(x.shape))
def takes_any_tensor_for_contiguous(x: Tensor) -> Tensor:
    return 2 * flat(x).view(x.shape)


@found_by("strides", X)
@doubled
@operator(lambda x: x.new_empty(x.shape))
def forgets_where_its_storage_begins(x: Tensor) -> Tensor:
    return 2 * x.contiguous().as_strided(x.shape, (x.shape[1], 1), 0)


@found_by("strides", X)
@doubled
@operator(lambda x: x.new_empty(x.shape))
def rounds_its_address_down_to_16_bytes(x: Tensor) -> Tensor:
    x = (
        x
        if not x.is_contiguous()
        else x.as_strided(
            x.shape,
            x.stride(),
            x.storage_offset() - x.data_ptr() % 16 // x.element_size(),
        )
    )
    return 2 * x.contiguous()


# What the registration promises -----------------------------------------------------


@found_by("fake kernel", X)
@doubled
@operator(lambda x: x.new_empty(x.shape))
def promises_contiguous_memory(x: Tensor) -> Tensor:
    return 2 * x


@found_by("fake kernel", X)
@operator(lambda x: x.new_empty(x.shape[:1]))
def promises_another_shape(x: Tensor) -> Tensor:
    return x.sum(0)


@found_by("fake kernel", X.bfloat16())
@operator(lambda x: x.new_empty(x.shape))
def promises_another_dtype(x: Tensor) -> Tensor:
    return 2 * x.float()


library = torch.library.Library("faults", "FRAGMENT")
library.define("alias(Tensor x) -> Tensor")
library.impl("alias", lambda x: x, "CPU")


@found_by("schema", X)
def returns_its_argument(x: Tensor) -> Tensor:
    return torch.ops.faults.alias(x)


@found_by("schema", X)
@operator()
def writes_to_its_argument(x: Tensor) -> Tensor:
    return x.mul_(2).clone()


@found_by("torch.compile", X)
def reads_a_number_while_it_is_traced(x: Tensor) -> Tensor:
    return 2 * x if torch.compiler.is_compiling() else x + x.mean()


# Memory and state -------------------------------------------------------------------


@found_by("every element written", X)
@doubled
@operator()
def leaves_out_the_tail(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    whole = x.numel() // 16 * 16
    flat(y)[:whole] = 2 * flat(x.contiguous())[:whole]
    return y


SCRATCH = torch.empty(24, dtype=torch.float64)


@found_by("threads", X)
@doubled
@operator()
def shares_scratch_memory(x: Tensor) -> Tensor:
    SCRATCH.copy_(x.flatten())
    time.sleep(1e-4)  # another thread has time to write
    return (2 * SCRATCH).to(x.dtype).view(x.shape)


KNOWN: dict[int, Tensor] = {}


@found_by("changed in between", X)
@doubled
@operator()
def caches_by_address(x: Tensor) -> Tensor:
    return KNOWN.setdefault(x.data_ptr(), 2 * x).clone()


@found_by("two devices", *PAIR)
@operator(lambda x, y: x.new_empty(x.shape))
def looks_at_one_device(x: Tensor, y: Tensor) -> Tensor:
    return x + y


@found_by("half precision", torch.ones(2, 320))
@operator(lambda x: x.new_empty(x.shape[:1]))
def adds_up_in_half_precision(x: Tensor) -> Tensor:
    total = x[:, 0].clone()
    for column in x.unbind(1)[1:]:
        total += column
    return total


# Derivatives and transforms ---------------------------------------------------------


@found_by("gradient", X)
def loses_the_gradient(x: Tensor) -> Tensor:
    return 2 * x.detach()


@found_by("gradient", X)
@operator()
def takes_a_statistic_for_a_constant(x: Tensor) -> Tensor:
    return x / x.norm()


takes_a_statistic_for_a_constant.register_autograd(
    lambda ctx, grad: grad / ctx.norm,
    setup_context=lambda ctx, inputs, output: setattr(ctx, "norm", inputs[0].norm()),
)


@found_by("second derivative", X)
@operator()
def detaches_its_gradient(x: Tensor) -> Tensor:
    return x**3


detaches_its_gradient.register_autograd(
    lambda ctx, grad: grad * 3 * ctx.saved_tensors[0].detach() ** 2,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


class _Mistaken(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * grad

    @staticmethod
    def jvp(ctx, tangent):
        return 0 * tangent

    @staticmethod
    def vmap(info, dims, x):
        return x**2 + 1, dims[0]


@found_by("forward mode", X)
def has_a_tangent_of_zero(x: Tensor) -> Tensor:
    return _Mistaken.apply(x)


@found_by("vmap", X)
def has_another_rule_for_vmap(x: Tensor) -> Tensor:
    return _Mistaken.apply(x)

"""opbook check finds what is planted, and nothing in what is right."""

import ctypes
import gc
import math
import os
import random
import signal
import time

import pytest
import torch
import torch.nn.functional as F
from pytorchs_own import FUNCTIONS
from torch import Tensor

from opbook_tools import Sample, check
from opbook_tools.check.errors import Crashed

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
ODD = X.flatten()[:21].view(3, 7)


def found(operator, arguments, **options) -> dict[str, str]:
    results = list(check.each(operator, arguments, **options))
    assert not [result for result in results if result.failed]
    return {r.name: r.text for r in results if r.verdict == "WRONG"}


def verdict(name: str, operator, arguments, **options) -> tuple[str, str]:
    results = check.results(operator, arguments, names=[name], **options)
    return next((what, text) for which, what, text in results if which == name)


def double(x):
    return 2 * x


# What is right -----------------------------------------------------------------------

# Of each kind one; `nox -s tests` without -k runs all of them.
QUICK = "mm", "batch_norm in training", "sort", "dropout", "masked with -inf"


@pytest.mark.parametrize("name", QUICK)
def test_nothing_is_found_in_a_function_of_pytorch(name):
    assert found(*FUNCTIONS[name]) == {}


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in QUICK])
def test_nothing_but_slow_checks_is_found_in_one(name):
    quick = set(check.CHECKS) - {"torch.compile", "threads", "hundredth call"}
    operator, arguments = FUNCTIONS[name]
    assert found(operator, arguments, names=quick) == {}


def test_a_right_operator_agrees_with_its_reference():
    names = [name for name, *_ in check.results(double, (X,), reference=double)]
    assert names == ["plain call", *check.CHECKS]
    check.check(double, (X,), reference=double)


def test_numbers_that_a_result_grows_with_stay_small():
    def count(x):
        if x.amax() > 1 << 24:
            os.abort()
        return torch.bincount(x)

    pair = count, (torch.tensor([3, 1, 3]),)
    assert found(*pair, reference=torch.bincount, names=["values"]) == {}


def log_mean_exp(x):
    largest = x.amax(-1, keepdim=True)
    largest = torch.where(largest.isfinite(), largest, 0.0)
    return largest.squeeze(-1) + (x - largest).exp().mean(-1).log()


def test_what_is_lost_in_a_difference_of_large_numbers_is_rounding():
    def reference(x):
        return x.logsumexp(-1) - math.log(x.shape[-1])

    assert found(log_mean_exp, (X,), reference=reference, names=["values"]) == {}

    def wrong(x):
        return log_mean_exp(x) + 1e-5 * x[..., 0]

    assert "values" in found(wrong, (X,), reference=reference, names=["values"])


def test_a_reference_that_refuses_one_size_has_the_others_compared():
    def reference(x):
        if not x.numel():
            raise ValueError("no elements")
        return 2 * x

    def wrong(x):
        return 2 * x if x.numel() == X.numel() else 3 * x

    assert found(double, (X,), reference=reference, names=["sizes"]) == {}
    assert "sizes" in found(wrong, (X,), reference=reference, names=["sizes"])


def test_a_reference_that_refuses_every_size_is_named():
    def reference(x):
        if x.shape != X.shape:
            raise ValueError("another size")
        return 2 * x

    what, text = verdict("sizes", double, (X,), reference=reference)
    assert what == "skipped"
    assert "another size" in text


def test_an_argument_without_dimensions_has_its_values_compared():
    pair = X, torch.tensor(0.5)
    assert found(torch.mul, pair, reference=torch.mul, names=["values"]) == {}


def test_parts_of_one_memory_that_do_not_overlap_are_two_results():
    def halves(x):
        return (2 * x).chunk(2, -1)

    def views(x):
        return x[:3], x[1:]

    for operator in (halves, views):
        assert found(operator, (X,), names=["outputs share memory"]) == {}


def test_closures_lists_and_keywords_are_called():
    factor = 3.0

    def scaled(tensors, *, by):
        return [factor * by * x for x in tensors]

    assert found(scaled, Sample(([X, ODD],), {"by": 2.0})) == {}


def adds_noise(x, generator):
    return x + torch.rand(x.shape, generator=generator, dtype=x.dtype)


def draws_from_another(x, generator):
    return x + torch.rand(x.shape, dtype=x.dtype)


def test_a_generator_among_the_arguments_is_drawn_from():
    quick = set(check.CHECKS) - {"torch.compile", "threads"}
    pair = X, torch.Generator().manual_seed(3)
    assert found(adds_noise, pair, names=quick) == {}
    assert "another one" in found(draws_from_another, pair, names=quick)["random"]


def test_a_result_that_is_the_same_by_chance_is_random():
    def seldom_another(x):
        return x + (torch.rand(()) < 0.4)  # not with the seeds 0 and 1

    assert "the result is random" in verdict("random", seldom_another, (X,))[1]


def test_an_operator_that_refuses_gradients_frees_its_memory():
    def doubled(x):
        if x.requires_grad:
            raise NotImplementedError("no gradient")
        return 2 * x

    verdicts = {name: said for name, said, _ in check.results(doubled, (X,))}
    assert verdicts["freed memory"] == "ok"


def test_eight_bits_are_no_numbers_to_calculate_with():
    assert found(lambda x: x.float() * 2, (X.to(torch.float8_e4m3fn),)) == {}


def attention(q, k, v):
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


def normalized(x):
    far = x - x.mean(-1, keepdim=True)
    return far * (far.square().mean(-1, keepdim=True) + 1e-5).rsqrt()


def drops_in_its_own_dtype(x, generator):
    return x * (torch.rand(x.shape, generator=generator, dtype=x.dtype) > 0.5)


def rounded_to_tenths(x):
    return x + ((x / 0.1).round() * 0.1 - x).detach()


class _RoundsToTenths(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return (x / 0.1).round() * 0.1

    @staticmethod
    def backward(ctx, grad):
        return grad


def repeated(x, times):
    return x.repeat(times, *[1] * (x.dim() - 1))


RIGHT = {
    "attention, NaN": (
        attention,
        F.scaled_dot_product_attention,
        tuple(X[None] + n for n in range(3)),
        "values",
    ),
    "a norm of equal numbers": (
        normalized,
        lambda x: F.layer_norm(x, x.shape[-1:]),
        (X,),
        "values",
    ),
    "other numbers in each dtype": (
        drops_in_its_own_dtype,
        None,
        (X, torch.Generator().manual_seed(3)),
        "gradient in other ways",
    ),
    "a step": (_RoundsToTenths.apply, None, (X,), "half precision"),
    "a gradient as its reference's": (
        _RoundsToTenths.apply,
        rounded_to_tenths,
        (X,),
        "gradient",
    ),
    "not element by element": (repeated, lambda x, n: x.repeat(n, 1), (X, 3), "sizes"),
}


library = torch.library.Library("check_test", "FRAGMENT")
library.define("noisy(Tensor x, Generator generator) -> Tensor")
library.impl("noisy", adds_noise, "CPU")


class _WithStatistics(torch.autograd.Function):
    """A result whose gradient nobody needs says that it has none."""

    @staticmethod
    def forward(ctx, x):
        mean = x.mean(-1)
        ctx.mark_non_differentiable(mean)
        return 2 * x, mean

    @staticmethod
    def backward(ctx, grad, _):
        return 2 * grad


def with_statistics(x):
    return 2 * x, x.mean(-1)


def has_a_scale_in_fp32(x, y, scale, shift):
    if x.dtype != y.dtype or {scale.dtype, shift.dtype} != {torch.float32}:
        raise TypeError("another dtype")
    return ((x.float() + y.float()) * scale + shift).to(x.dtype)


def draws_in_the_order_of_memory(x, generator):
    return x + torch.empty_like(x).exponential_(generator=generator)


RIGHT |= {
    "noise in the order of memory": (
        draws_in_the_order_of_memory,
        None,
        (X, torch.Generator().manual_seed(3)),
        "strides",
    ),
    "a sample without elements": (
        lambda x: x.sum(0),
        None,
        (X[:0],),
        "half precision",
    ),
    "rows that draw from one generator": (
        torch.ops.check_test.noisy,
        None,
        (X, torch.Generator().manual_seed(3)),
        "vmap",
    ),
    "a result without a gradient": (_WithStatistics.apply, None, (X,), "gradient"),
    "more than half precision holds": (
        torch.square,
        None,
        (1e3 * X,),
        "half precision",
    ),
}


def test_a_result_without_a_gradient_is_named_unless_the_reference_has_one():
    what, text = verdict("gradient", _WithStatistics.apply, (X,))
    assert (what, "result 1" in text) == ("note", True)
    for options in ({"reference": with_statistics}, {"strict": True}):
        assert verdict("gradient", _WithStatistics.apply, (X,), **options)[0] == "WRONG"


def test_half_precision_is_tried_beside_a_scale_of_its_own_dtype():
    arguments = X, X + 1, X[0], X[1]
    assert verdict("half precision", has_a_scale_in_fp32, arguments)[0] == "ok"


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_found_in_what_people_write(name):
    operator, reference, arguments, what = RIGHT[name]
    assert found(operator, arguments, reference=reference, names=[what]) == {}


# What is wrong -----------------------------------------------------------------------

known = {}


def cached_by_content(x):
    return known.setdefault(x.sum().round().item(), 2 * x).clone()


calls = []


def wrong_after_ten_calls(x):
    calls.append(1)
    return 2 * x + (len(calls) > 10)


def reseeds(x):
    torch.manual_seed(0)
    return 2 * x


def changes_the_default_dtype(x):
    torch.set_default_dtype(torch.float64)
    return 2 * x


def follows_the_default_dtype(x):
    return x * torch.linspace(1, 2, x.shape[-1])


def follows_the_default_device(x):
    return torch.empty(x.shape, dtype=x.dtype).copy_(2 * x)


def writes_beside_its_argument(x):
    y = x.clone()
    if x.storage_offset():
        x.as_strided((1,), (1,), 0).fill_(7)
    return 2 * y


def writes_to_a_transposed_argument(x):
    return 2 * x if x.is_contiguous() else x.mul_(2).clone()


def wrong_without_gradients(x):
    return 2 * x + (not torch.is_grad_enabled())


def one_memory_twice(x):
    y = 2 * x
    return y, y


def zeros(x):
    return torch.zeros_like(x)


def drops_nan(x):
    return torch.where(x > 0, x, 0.0)


def up_to_a_block(x):
    return x[..., :1024].sum(-1)


def in_half_precision(x):
    return x.half().exp().to(x.dtype)


def ignores_a_conjugate(x):
    return torch.view_as_real(x.conj()) if x.is_conj() else torch.view_as_real(x)


class _GivesUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return 2 * x, 3 * x

    @staticmethod
    def backward(ctx, a, b):
        return None if a is None or b is None else 2 * a + 3 * b


class _TakesGradientsForContiguous(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        whole = grad.untyped_storage().nbytes() // grad.element_size()
        if whole < grad.storage_offset() + grad.numel():  # strides of 0
            return 2 * grad
        return 2 * grad.as_strided(grad.shape, (grad.shape[1], 1)).clone()


class _KeepsItsArgument(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x**2

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.x * grad


class _ClipsItsGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return (2 * grad).clamp(-3, 3)


class _NeedsBothForOne(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y if ctx.needs_input_grad[1] else None, grad * x


class _IsDifferentiableOnce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * grad


class _PassesGradientsOfRound(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


class _MisreadsRowsOfOneGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad if grad.stride() != (0, 1) else 3 * grad


class _KeepsItsResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.y = x.exp()
        return ctx.y

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.y


kept = []


def keeps_each_result(x):
    kept.append(2 * x)
    return kept[-1].clone()


def keeps_one_result(x):
    kept[:] = [2 * x]
    return kept[-1].clone()


def draws(x):
    return 2 * x + torch.rand_like(x)


def fails_without_dimensions(x):
    return 2 * x if x.dim() else 0 * x


def overflows(x):
    return (x.int() ** 2).long()


def rounds_towards_zero(x, y):
    return torch.div(x, y, rounding_mode="trunc")


def misreads_columns(x, y):
    return x * (y if y.stride() != (1, 0) else 2 * y)


def takes_dense_rows_for_evenly_spaced(x):
    if x.stride(-1) == 1 and x.dim() == 3 and x.stride(0) > x.shape[1] * x.stride(1):
        return 3 * x
    return 2 * x


def switches_deterministic_algorithms_on(x):
    torch.use_deterministic_algorithms(True)
    return 2 * x


def flushes_small_numbers(x):
    torch.set_flush_denormal(True)
    return 2 * x


def switches_cudnn_off(x):
    torch.backends.cudnn.enabled = False
    return 2 * x


def is_shifted_under_autocast(x):
    return 2 * x + torch.is_autocast_enabled("cpu") / 2


def adds_in_its_own_dtype(x):
    total = x[..., 0]
    for column in x.unbind(-1)[1:]:
        total = total + column
    return total


def two_parts_that_overlap(x):
    y = 2 * x
    return y[:3], y[1:]


def a_part_as_numpy_makes_it(x):
    return torch.from_numpy(x.detach().numpy()[1:])


def scales_its_data(x):
    x.data.mul_(2)


def itself_if_positive(x):
    return x if (x >= 0).all() else x.relu()


def in_another_dtype(x):
    return 2 * x.double()


def adds_in_any_order(x):
    columns = list(x.unbind(-1))
    random.Random(time.perf_counter_ns()).shuffle(columns)
    total = torch.zeros_like(columns[0])
    for column in columns:
        total = total * 0.5 + column
    return total


def overflows_in_half_precision(x):
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt().to(x.dtype)


class _DividesZeroByZero(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sinc(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        p = math.pi * x
        return grad * (p.cos() - p.sin() / p) / x


WRONG = {
    "random, in no order": (
        adds_in_any_order,
        lambda x: x @ 0.5 ** torch.arange(x.shape[-1] - 1, -1, -1.0, dtype=x.dtype),
    ),
    "half precision": (
        overflows_in_half_precision,
        lambda x: F.rms_norm(x, x.shape[-1:], None, 1e-6),
    ),
    "gradient, at zeros": (_DividesZeroByZero.apply, torch.sinc),
    "freed memory": (keeps_each_result, keeps_one_result),
    "autocast": (is_shifted_under_autocast, double),
    "changed in between": (cached_by_content, double),
    "hundredth call": (wrong_after_ten_calls, double),
    "random": (reseeds, double),
    "random, unlike its reference": (draws, double),
    "state": (changes_the_default_dtype, double),
    "outputs share memory": (one_memory_twice, lambda x: (2 * x, 2 * x)),
    "outputs share memory, of an argument": (itself_if_positive, torch.relu),
    "reference": (in_half_precision, torch.exp),
    "reference, in its dtype": (in_another_dtype, double),
    "sizes": (up_to_a_block, lambda x: x.sum(-1)),
    "sizes, and none at all": (fails_without_dimensions, double),
    "values": (drops_nan, torch.relu),
    "gradient": (_GivesUp.apply, lambda x: (2 * x, 3 * x)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_is_found_by_its_check(name):
    operator, reference = WRONG[name]
    name = name.partition(",")[0]
    for x in (X.abs(),) if operator is itself_if_positive else (X,):
        assert verdict(name, operator, (x,), reference=reference)[0] == "WRONG"
        assert verdict(name, reference, (x,), reference=reference)[0] != "WRONG"


@pytest.mark.parametrize(
    ("name", "operator", "text"),
    [
        ("freed memory", _KeepsItsResult.apply, "that record a gradient"),
        ("state", flushes_small_numbers, "smallest numbers"),
        ("state", switches_cudnn_off, "cudnn"),
        ("gradient in other ways", _MisreadsRowsOfOneGradient.apply, "strides 0"),
        ("modes", follows_the_default_dtype, "default dtype"),
        ("modes", follows_the_default_device, "default device"),
        ("modes", wrong_without_gradients, "no_grad"),
        ("strides", writes_beside_its_argument, "outside of argument 0"),
        ("strides", writes_to_a_transposed_argument, "argument 0 after the call"),
        ("gradient in other ways", _TakesGradientsForContiguous.apply, "transposed"),
        ("gradient in other ways", _KeepsItsArgument.apply, "before backward"),
        ("gradient in other ways", _ClipsItsGradient.apply, "1024 times as large"),
        (
            "gradient",
            _PassesGradientsOfRound.apply,
            "--expect 'gradient: the gradient by argument 0:'",
        ),
        (
            "half precision",
            adds_in_its_own_dtype,
            "bfloat16 beside float32, argument 0",
        ),
        ("half precision", adds_in_its_own_dtype, "a size of 1537: the result"),
        ("outputs share memory", two_parts_that_overlap, "two results share memory"),
        ("outputs share memory", a_part_as_numpy_makes_it, "is no view of it"),
        ("schema", scales_its_data, "version is not advanced"),
    ],
)
def test_a_finding_names_the_cause(name, operator, text):
    what, found_text = verdict(name, operator, (X,))
    assert what == "WRONG"
    assert text in found_text


INTEGERS = torch.arange(1, 7)
INTEGER_FAULTS = {
    "overflow": (overflows, torch.square, (INTEGERS,)),
    "negative": (
        rounds_towards_zero,
        torch.floor_divide,
        (INTEGERS, torch.full((6,), 4)),
    ),
}


@pytest.mark.parametrize("name", INTEGER_FAULTS)
def test_large_and_negative_integers_are_compared(name):
    operator, reference, arguments = INTEGER_FAULTS[name]
    given = {"reference": reference, "names": ["values"]}
    assert "values" in found(operator, arguments, **given)
    assert found(reference, arguments, **given) == {}


def test_views_that_a_transpose_does_not_make_are_passed():
    text = found(misreads_columns, (X, X.exp()), names=["strides"])["strides"]
    assert "argument 1, expanded from one column" in text
    text = found(
        takes_dense_rows_for_evenly_spaced, (X.view(2, 4, 4),), names=["strides"]
    )["strides"]
    assert "part of a longer dimension" in text
    pair = X.view(2, 4, 4), X.view(2, 4, 4)
    assert found(torch.mul, pair, names=["strides"]) == {}


def test_a_setting_is_compared_with_what_it_was_before_the_first_call():
    names = ["strides", "state"]
    assert "state" in found(switches_deterministic_algorithms_on, (X,), names=names)


def test_a_gradient_that_cancels_is_rounding():
    image = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    norm = F.instance_norm
    assert found(norm, (image,), names=["gradient in other ways"]) == {}


def test_a_difference_is_named_with_its_place_and_both_values():
    _, text = verdict("reference", zeros, (X,), reference=double)
    assert f"[0, 0] is 0 instead of {2 * X[0, 0].item():.7g}" in text


@torch.library.custom_op("check_test::fill", mutates_args=("out",))
def fill(out: Tensor, x: Tensor) -> None:
    flat = out.view(-1)
    flat[: x.numel() // 4 * 4] = 2 * x.reshape(-1)[: x.numel() // 4 * 4]


@torch.library.custom_op("check_test::nothing", mutates_args=("out",))
def nothing(out: Tensor, x: Tensor) -> None:
    pass


@torch.library.custom_op("check_test::accumulate", mutates_args=("out",))
def accumulate(out: Tensor, x: Tensor) -> None:
    out.add_(x)


def test_what_is_written_to_an_argument_is_compared():
    pair = torch.zeros(3, 7), ODD
    assert "last 1 of 21" in found(fill, pair)["every element written"]
    assert "nothing is written" in found(nothing, pair)["every element written"]
    assert found(accumulate, (torch.zeros(3, 7), ODD)) == {}


def test_what_new_memory_holds_does_not_matter():
    some_nan = torch.full((3, 7), torch.nan), ODD
    assert "last 1 of 21" in found(fill, some_nan)["every element written"]


@pytest.mark.parametrize(
    "reference", [lambda out, x: out.copy_(2 * x), lambda _, x: 2 * x]
)
def test_a_reference_may_write_or_return(reference):
    pair = torch.zeros(3, 7), ODD
    assert "reference" in found(fill, pair, reference=reference, names=["reference"])


FAKES = {
    "shape": lambda x: x.new_empty(x.shape if x.shape[-1] % 2 == 0 else x.shape[1:]),
    "shape, empty": lambda x: x.new_empty(x.shape if x.numel() else 0),
    "device": lambda x: torch.empty(x.shape, dtype=x.dtype),
    "": lambda x: x.new_empty(x.shape),
}


@pytest.mark.parametrize("wrong", FAKES)
def test_a_fake_kernel_is_compared_for_other_sizes_and_devices(wrong):
    name = f"check_test::fake_{list(FAKES).index(wrong)}"
    operator = torch.library.custom_op(
        name,
        lambda x: (2 * x).contiguous(),
        mutates_args=(),
        schema="(Tensor x) -> Tensor",
    )
    operator.register_fake(FAKES[wrong])
    what, text = verdict("fake kernel", operator, (X,))
    assert (what, wrong.partition(",")[0] in text) == ("WRONG" if wrong else "ok", True)


@torch.library.custom_op("check_test::square_backward", mutates_args=())
def square_backward(grad: Tensor, x: Tensor) -> Tensor:
    return 2 * x * grad


@torch.library.custom_op("check_test::square", mutates_args=())
def square(x: Tensor) -> Tensor:
    return x**2


square.register_fake(torch.empty_like)
square.register_autograd(
    lambda ctx, grad: square_backward(grad, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def test_the_fake_kernel_of_a_backward_operator_is_compared():
    square_backward.register_fake(lambda grad, x: grad.new_empty(x.shape[:1]))
    text = found(square, (X,), names=["fake kernel"])["fake kernel"]
    assert "square_backward" in text
    square_backward.register_fake(lambda grad, x: 2 * x * grad)
    assert found(square, (X,), names=["fake kernel"]) == {}


library.define("halve_(Tensor(a!) x) -> ()")
library.impl("halve_", lambda x: x.numpy().__imul__(0.5) is None or None, "CPU")


@torch.library.custom_op("check_test::third", mutates_args=("x",))
def third(x: Tensor) -> None:
    x.numpy().__imul__(1 / 3)


def test_a_write_of_which_autograd_knows_nothing_is_found():
    pytest.importorskip("numpy")
    text = found(torch.ops.check_test.halve_, (X,), names=["schema"])["schema"]
    assert "version" in text
    assert found(third, (X,), names=["schema"]) == {}


@torch.library.custom_op("check_test::rows", mutates_args=())
def rows(x: Tensor, index: Tensor) -> Tensor:
    return x[index]


rows.register_fake(lambda x, index: x.new_empty(index.shape + x.shape[1:]))


library.define("add_all(Tensor x, Tensor y) -> Tensor")
library.impl("add_all", torch.add, "CPU")


@torch.library.impl("check_test::add_all", "Meta", lib=library)
def crashes_without_data(x, y):
    signal.raise_signal(signal.SIGSEGV)


def test_a_crash_without_data_names_the_argument():
    text = verdict("two devices", torch.ops.check_test.add_all, (X, X + 1))[1]
    assert "argument 0 has no data: ended by SIGSEGV" in text


@torch.library.custom_op("check_test::lowered", mutates_args=())
def lowered(x: Tensor) -> Tensor:
    low = torch.is_autocast_enabled("cpu")
    return 2 * x.to(torch.bfloat16 if low else x.dtype).contiguous()


def test_a_fake_kernel_is_compared_under_autocast():
    lowered.register_fake(lambda x: x.new_empty(x.shape))
    for strict, expected in ((False, "note"), (True, "WRONG")):
        what, text = verdict("fake kernel", lowered, (X,), strict=strict)
        assert what == expected
        assert "under autocast: promises the dtype float32" in text


def test_an_argument_without_data_is_a_note_unless_strict():
    pair = X, torch.tensor([0, 2])
    assert verdict("two devices", rows, pair)[0] == "note"
    assert verdict("two devices", rows, pair, strict=True)[0] == "WRONG"


@torch.library.custom_op("check_test::checked_rows", mutates_args=())
def checked_rows(x: Tensor, index: Tensor) -> Tensor:
    if index.is_meta:
        return x.new_zeros(len(index), x.shape[1])
    if (index.diff() < 0).any():
        raise ValueError("the index decreases")
    return x[index]


checked_rows.register_fake(lambda x, index: x.new_empty(len(index), x.shape[1]))


def test_an_argument_whose_other_numbers_are_refused_is_tried_without_data():
    assert verdict("two devices", checked_rows, (X, torch.tensor([0, 2])))[0] == "note"


@torch.library.custom_op("check_test::like_second", mutates_args=())
def like_second(x: Tensor, y: Tensor) -> Tensor:
    return torch.zeros(y.shape)


like_second.register_fake(lambda x, y: torch.empty(y.shape))


def test_where_no_argument_matters_the_row_does_not_say_ok():
    assert verdict("two devices", like_second, (X, X + 1))[0] == "skipped"


def unchecked_rows(x, index):
    numbers = [
        ctypes.c_float.from_address(x.data_ptr() + x.element_size() * i).value
        for i in index.tolist()
    ]
    return torch.tensor(numbers)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_an_index_that_is_not_looked_at_is_a_note_unless_strict(dtype):
    arguments = X, torch.tensor([3, 5, 5], dtype=dtype)
    what, text = verdict("indices", unchecked_rows, arguments)
    assert what == "note"
    assert "for 5 is ended by SIGSEGV" in text
    assert verdict("indices", unchecked_rows, arguments, strict=True)[0] == "WRONG"


def many(x, count):
    return x.repeat_interleave(count, 0)


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (lambda x, i: x[i], "refuses"),
        (lambda x, i: x + i[:, None], "ok"),
        (many, "refuses"),
    ],
)
def test_an_integer_that_is_no_index_is_none(operator, expected):
    arguments = X, torch.tensor([0, 3, 2, 1], dtype=torch.int32)
    assert verdict("indices", operator, arguments)[0] == expected


class KeepsIndex(torch.autograd.Function):
    """Rows, whose gradient looks at the index again."""

    @staticmethod
    def forward(ctx, x, index, is_saved):
        ctx.is_saved, ctx.size = is_saved, len(x)
        if is_saved:
            ctx.save_for_backward(index)
        else:
            ctx.index = index
        return x[index]

    @staticmethod
    def backward(ctx, grad):
        index = ctx.saved_tensors[0] if ctx.is_saved else ctx.index
        zeros = grad.new_zeros(ctx.size, grad.shape[1])
        return zeros.index_add(0, index, grad), None, None


@pytest.mark.parametrize(("is_saved", "expected"), [(False, "WRONG"), (True, "ok")])
def test_an_index_changes_before_backward(is_saved, expected):
    arguments = X, torch.tensor([0, 3]), is_saved
    what, text = verdict("gradient in other ways", KeepsIndex.apply, arguments)
    assert what == expected
    assert is_saved or "when argument 1 changes before backward" in text


@torch.library.custom_op("check_test::marks_first", mutates_args=())
def marks_first(x: Tensor, follows_strides: bool) -> Tensor:
    y = 2 * (x if follows_strides else x.as_strided(x.shape, X.stride()))
    y = y.contiguous()
    y[0, 0] = -1e10
    return y


@pytest.mark.parametrize(("right", "expected"), [(False, "WRONG"), (True, "ok")])
def test_a_number_that_stands_for_nothing_hides_no_difference(right, expected):
    assert verdict("strides", marks_first, (X, right))[0] == expected


@torch.library.custom_op("check_test::writes_a_part", mutates_args=())
def writes_a_part(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    y[:-1] = x[:-1]
    return y


@pytest.mark.parametrize("fills", [False, True])
def test_memory_that_the_caller_has_filled_hides_nothing(fills):
    torch.use_deterministic_algorithms(fills, warn_only=True)
    try:
        what = verdict("every element written", writes_a_part, (X,))[0]
    finally:
        torch.use_deterministic_algorithms(False)
    assert what == "WRONG"


def largest_from(start):
    return lambda x: torch.where(
        x.isnan().any(-1), torch.nan, x.amax(-1).clamp_min(start)
    )


def test_a_maximum_begins_with_the_least_number():
    reference = largest_from(-torch.inf)
    for start, expected in ((-1e10, "WRONG"), (-torch.inf, "ok")):
        operator = largest_from(start)
        assert verdict("values", operator, (X,), reference=reference)[0] == expected


@torch.library.custom_op("check_test::cube", mutates_args=())
def cube(x: Tensor) -> Tensor:
    return x**3


cube.register_fake(torch.empty_like)
cube.register_autograd(
    lambda ctx, grad: 3 * ctx.saved_tensors[0] ** 2 * grad,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


library.define("cube2(Tensor x) -> Tensor")
library.impl("cube2", lambda x: x**3, "CPU")
library.impl("cube2", torch.empty_like, "Meta")
torch.library.register_autograd(
    "check_test::cube2",
    lambda ctx, grad: 3 * ctx.saved_tensors[0] ** 2 * grad,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    lib=library,
)


@pytest.mark.parametrize("operator", [cube, torch.ops.check_test.cube2])
def test_an_operator_without_forward_mode_is_a_note_unless_strict(operator):
    assert verdict("forward mode", operator, (X,))[0] == "note"
    assert verdict("forward mode", operator, (X,), strict=True)[0] == "WRONG"
    assert found(operator, (X,)) == {}


def test_a_table_without_a_gradient_is_not_checked_and_the_rest_is():
    def looked_up(x, table):
        return x.detach() * table.exp()

    what, text = verdict("gradient", looked_up, (X, X.clone()))
    assert (what, "argument 0" in text) == ("note", True)
    assert (
        verdict("gradient", looked_up, (X, X.clone()), nondifferentiable=[0])[0] == "ok"
    )


@torch.library.custom_op("check_test::weighted", mutates_args=())
def weighted(x: Tensor, table: Tensor) -> Tensor:
    return x * table.exp()


weighted.register_autograd(
    lambda ctx, grad: (grad * ctx.saved_tensors[0].exp(), None),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[1]),
)


def test_a_table_whose_gradient_is_none_is_wrong_beside_a_reference_alone():
    pair = X, X.clone()
    assert "argument 1" in verdict("gradient", weighted, pair)[1]
    assert found(weighted, pair, names=["gradient", "second derivative"]) == {}
    reference = {"reference": lambda x, table: x * table.exp()}
    assert "argument 1" in found(weighted, pair, **reference)["gradient"]
    assert "depends on it" in verdict("gradient", weighted, pair, strict=True)[1]


def test_an_argument_on_which_nothing_depends_needs_no_gradient():
    def shape_of(x, like):
        return 2 * x.expand(like.shape)

    pair = X, X.clone()
    assert verdict("gradient", shape_of, pair, strict=True)[0] == "note"


@torch.library.custom_op("check_test::product", mutates_args=())
def product(x: Tensor, y: Tensor) -> Tensor:
    return x * y


def half_of_the_gradient(ctx, grad):
    x, y = ctx.saved_tensors
    return grad * y, grad * x if torch.is_grad_enabled() else None


product.register_autograd(
    half_of_the_gradient,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        (product, "no gradient by argument 1, and with create_graph=True"),
        (_NeedsBothForOne.apply, "no gradient by argument 0, and together"),
    ],
)
def test_a_gradient_in_one_way_of_asking_for_it_is_wrong(operator, text):
    assert text in found(operator, (X, X.exp()), names=["gradient"])["gradient"]


class _CubeInNumpy(torch.autograd.Function):
    """Its kernel takes fp32 alone, and its gradient is computed outside PyTorch."""

    @staticmethod
    def forward(ctx, x):
        if x.dtype != torch.float32:
            raise TypeError("expected float32")
        ctx.save_for_backward(x)
        return torch.from_numpy(x.detach().numpy() ** 3)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return torch.from_numpy(3 * x.detach().numpy() ** 2 * grad.detach().numpy())


class _Cube(_CubeInNumpy):
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad


class _Double(_CubeInNumpy):
    """Its gradient does not depend on the argument."""

    @staticmethod
    def forward(ctx, x):
        return 2 * _CubeInNumpy.forward(ctx, x) ** 0 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


@pytest.mark.parametrize(
    ("operator", "expected"),
    [(_CubeInNumpy, "WRONG"), (_Cube, "skipped"), (_Double, "skipped")],
)
def test_a_second_derivative_is_missed_where_fp64_is_refused(operator, expected):
    what, text = verdict("second derivative", operator.apply, (X,))
    assert what == expected
    assert "records nothing" in text or "refuses fp64" in text


def test_what_refuses_a_second_derivative_is_not_wrong():
    names = ["gradient", "second derivative"]
    assert found(_IsDifferentiableOnce.apply, (X,), names=names) == {}
    assert "second derivative" in found(_Detaches.apply, (X,), names=names)


class _KeepsOneOnCtx(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x)
        ctx.y = y
        return x * y

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.y, grad * x


def test_the_argument_that_changes_before_backward_is_named():
    name = "gradient in other ways"
    wrong = found(_KeepsOneOnCtx.apply, (X, X.exp()), names=[name])
    assert "when argument 1 changes before backward" in wrong[name]


class _Detaches(_IsDifferentiableOnce):
    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0].detach() * grad


# Operators that write to an argument --------------------------------------------------


class _Scales(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x.clone(), y)
        ctx.mark_dirty(x)
        return x.mul_(y)

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y, grad * x


class _SavesWhatItHasWritten(_Scales):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x.mul_(y))
        ctx.save_for_backward(x, y)
        return x


def eager(x, y):
    x.mul_(y)


def under_no_grad(x, y):
    with torch.no_grad():
        return x.mul_(y)


def updates_under_no_grad(x, y):
    under_no_grad(x, y)


def keeps_a_state(state, x):
    with torch.no_grad():
        state.mul_(0.9).add_(x)
    return 2 * x


def refuses_gradients(x, y):
    if torch.is_grad_enabled() and (x.requires_grad or y.requires_grad):
        raise RuntimeError("no gradient")
    x.mul_(y)


@torch.library.custom_op("check_test::scale_", mutates_args=("x",))
def scale_(x: Tensor, y: Tensor) -> None:
    x.mul_(y)


library.define("scale2_(Tensor(a!) x, Tensor y) -> Tensor(a!)")
library.impl("scale2_", lambda x, y: x.detach().mul_(y) is None or x, "CPU")


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        (_Scales.apply, ""),
        (eager, ""),
        (refuses_gradients, ""),
        (keeps_a_state, ""),
        (updates_under_no_grad, ""),
        (_SavesWhatItHasWritten.apply, "the gradient by argument 1"),
        (scale_, ""),
        (torch.ops.check_test.scale2_, "no gradient is recorded of what is written"),
        (under_no_grad, "no gradient is recorded of what is written"),
    ],
)
def test_the_gradient_of_what_is_written_is_compared(operator, text):
    wrong = found(operator, (X, X.exp()), names=["gradient", "gradient in other ways"])
    assert bool(wrong) == bool(text)
    assert text in wrong.get("gradient", "")


def test_what_pytorch_cannot_record_of_a_write_is_a_note_unless_strict():
    pair = X, X.exp()
    for reference in (None, eager):
        what, text = verdict("gradient", scale_, pair, reference=reference)
        assert (what, "of what is written" in text) == ("note", True)
    assert verdict("forward mode", scale_, pair)[0] == "note"
    for name in ("gradient", "forward mode"):
        assert verdict(name, scale_, pair, strict=True)[0] == "WRONG"


# Beside a reference -------------------------------------------------------------------


def clamps_its_index(x, i):
    return x[i.clamp(min=0)]


def takes_no_notice_of_its_block(x, block):
    return torch.cat([2 * part for part in x.split(block, -1)], -1)


def reads_its_index_with_16_bits(x):
    flat = x.flatten()
    return 2 * flat[torch.arange(len(flat)) % (1 << 16)].view(x.shape)


def drops_a_sign(x):
    return x.t() + 0.0


def leaky(x):
    return x.relu() - 0.01 * (-x).relu()


def through_float(i):
    return (i.float() * 3).long()


def subtracts_its_bias(x, bias: Tensor | None = None):
    return x if bias is None else x - bias


def adds_its_bias(x, bias: Tensor | None = None):
    return x if bias is None else bias + x


def fails_without_its_weight(x, weight: Tensor | None):
    return 0 * x if weight is None else x * weight


def weights(x, weight: Tensor | None):
    return x if weight is None else weight * x


def takes_no_flag(x, reverse=False):
    return x.cumsum(-1)


def sums(x, reverse=False):
    return x.flip(-1).cumsum(-1).flip(-1) if reverse else x.cumsum(-1)


def drops(x, training: bool = False):
    return F.dropout(x, 0.5, training)


ROWS = torch.tensor([0, 3, 1])
BESIDE = {
    "-1 as an index": ("values", clamps_its_index, (X, ROWS), lambda x, i: x[i]),
    "-1 as an index, refused": ("values", torch.index_select, (X, 0, ROWS), None),
    "-1 as a dimension": (
        "values",
        lambda x, dim: x.sum(max(dim, 0)),
        (X, 1),
        torch.sum,
    ),
    "-1 as a size": (
        "values",
        takes_no_notice_of_its_block,
        (X, 4),
        lambda x, block: 2 * x,
    ),
    "16 bits": ("sizes", reads_its_index_with_16_bits, (X,), double),
    "a sign of 0": ("values", drops_a_sign, (X,), torch.t),
    "a sign of 0 that none needs": (
        "values",
        leaky,
        (X,),
        F.leaky_relu,
    ),
    "more than 24 bits": ("values", through_float, (INTEGERS,), lambda i: 3 * i),
    "an optional tensor given": ("reference", subtracts_its_bias, (X,), adds_its_bias),
    "an optional tensor left out": (
        "reference",
        fails_without_its_weight,
        (X, X.exp()),
        weights,
    ),
    "a flag": ("reference", takes_no_flag, (X,), sums),
    "a flag that draws": ("reference", drops, (X,), drops),
    "a flag that the reference ignores": ("reference", sums, (X,), takes_no_flag),
}
HARMLESS = {
    "-1 as an index, refused",
    "-1 as a size",
    "a sign of 0 that none needs",
    "a flag that draws",
    "a flag that the reference ignores",
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_the_sample_leaves_out_is_compared(name):
    which, operator, arguments, reference = BESIDE[name]
    reference = reference or operator
    given = {"reference": reference, "names": [which]}
    assert bool(found(operator, arguments, **given)) is (name not in HARMLESS)
    assert found(reference, arguments, **given) == {}


@torch.library.custom_op("check_test::halves", mutates_args=())
def halves(x: Tensor, half: bool = False, clip: bool = False) -> Tensor:
    x = x.clamp_(-1, 1) if clip else x
    return x.half() if half else x.clone()


def test_a_flag_that_the_sample_leaves_out_keeps_what_is_promised():
    halves.register_fake(lambda x, half=False, clip=False: torch.empty_like(x))
    wrong = found(halves, (X,), names=["schema", "fake kernel"])
    assert "clip True: argument 0 is written" in wrong["schema"]
    assert "half True: promises the dtype float32" in wrong["fake kernel"]


# Beside an ordinary call --------------------------------------------------------------


def _with_gradient(forward, backward):
    """A function of two tensors and an option, differentiable by the first."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y, option):
            ctx.save_for_backward(x, y)
            ctx.option = option
            return forward(x, y, option)

        @staticmethod
        def backward(ctx, grad):
            return backward(grad, *ctx.saved_tensors, ctx.option), None, None

    return Function.apply


def _product(masked):
    apply = _with_gradient(
        lambda x, y, causal: (x @ y.mT).tril() if causal else x @ y.mT,
        lambda g, x, y, causal: (g.tril() if causal and masked else g) @ y,
    )

    def product(x, y, causal: bool = False):
        return apply(x, y, causal)

    return product


def _bag(weighted):
    def spread(g, x, i, weight):
        g = g[:, None].expand(*i.shape, -1)
        g = g if weight is None or not weighted else g * weight[..., None]
        return torch.zeros_like(x).index_put((i,), g, accumulate=True)

    def rows(x, i, weight):
        return x[i] if weight is None else x[i] * weight[..., None]

    apply = _with_gradient(lambda x, i, w: rows(x, i, w).sum(1), spread)

    def bag(x, i, weight: Tensor | None = None):
        return apply(x, i, weight)

    return bag


def _leaky(known):
    apply = _with_gradient(
        lambda x, _, slope: torch.where(x > 0, x, slope * x),
        lambda g, x, _, slope: torch.where(x > 0, g, (known or slope) * g),
    )

    def leaky(x, slope: float = 0.01):
        return apply(x, x.detach(), slope)

    return leaky


def _gated(block, most=None):
    """Leaves out what does not fill a block, or comes after the most that it knows."""

    def gated(x, y):
        if x.shape != y.shape:
            raise ValueError("two shapes")
        out = torch.empty(x.shape, dtype=x.dtype)
        n = min(x.numel() // block * block, most or x.numel())
        out.view(-1)[:n] = (x.sigmoid() * y).reshape(-1)[:n]
        return out

    return gated


def reads_past_the_end(x):
    flat, size = x.contiguous(), min(x.numel() + 3, x.untyped_storage().nbytes() // 4)
    size -= flat.storage_offset()
    long = flat.as_strided((max(size, x.numel()),), (1,))
    mask = torch.arange(len(long)) < x.numel()
    return (long * mask).sum()


def reads_no_dtype(x, i):
    return x[i.flatten().view(torch.int64) % len(x)]


def any_integer(x, i):
    return x[i.flatten().long()]


def unit(x, eps=1e-8):
    return x / (x.norm(dim=-1, keepdim=True) + eps)


def shift_in_its_own_dtype_(x):
    x.sub_(adds_in_its_own_dtype(x.abs())[..., None])


def shift_(x):
    x.sub_(x.abs().sum(-1, keepdim=True))


def clamps_halves(x):
    return (x.clamp_(-1, 1) if x.dtype == torch.half else x.clamp(-1, 1)).clone()


PAIRS = torch.tensor([[0, 2], [1, 1], [3, 3]])
# The check, an operator with a fault, one without, and the arguments.
SILENT = {
    "a flag": ("gradient", _product(False), _product(True), (X, X.exp())),
    "an optional tensor": ("gradient", _bag(False), _bag(True), (X, PAIRS)),
    "a number": ("gradient", _leaky(0.01), _leaky(None), (X,)),
    "a tail of two": ("every element written", _gated(4), _gated(1), (X, X.exp())),
    "a long one": ("every element written", _gated(1, 999), _gated(1), (X, X.exp())),
    "past the end": ("strides", reads_past_the_end, torch.sum, (X,)),
    "32 bits": ("strides", reads_no_dtype, any_integer, (X, PAIRS)),
    "zeros": ("half precision", unit, lambda x: unit(x, 1e-3), (X,)),
    "in place": ("half precision", shift_in_its_own_dtype_, shift_, (X,)),
    "a write": ("half precision", clamps_halves, lambda x: x.clamp(-1, 1), (X,)),
}


@pytest.mark.parametrize("name", SILENT)
def test_what_the_sample_does_not_show_is_compared_with_it(name):
    which, wrong, right, arguments = SILENT[name]
    assert verdict(which, wrong, arguments)[0] == "WRONG"
    assert verdict(which, right, arguments)[0] in ("ok", "note")


def test_a_number_in_the_code_is_found_beside_a_reference():
    def leaky(x, slope: float = 0.01):
        return F.leaky_relu(x, 0.01)

    given = {"reference": F.leaky_relu, "names": ["reference"]}
    assert "slope 0.005" in found(leaky, (X, 0.01), **given)["reference"]
    assert found(F.leaky_relu, (X, 0.01), **given) == {}


def test_a_tenth_more_under_autocast_is_no_rounding():
    def tenth(x):
        return 2 * x * (1.1 if torch.is_autocast_enabled("cpu") else 1)

    def layers(x):
        for _ in range(4):
            x = (x @ (x.mT @ x)).tanh()
        return x

    assert "of its norm" in found(tenth, (X,), names=["autocast"])["autocast"]
    for right in (double, layers):
        assert found(right, (X,), names=["autocast"]) == {}


# How a check ends ---------------------------------------------------------------------


def crashes(x):
    if not x.is_contiguous():
        signal.raise_signal(signal.SIGSEGV)  # in this thread, as a fault of memory
    return 2 * x


def hangs(x):
    if not x.is_contiguous():
        time.sleep(60)
    return 2 * x


def exits(x):
    if not x.is_contiguous():
        raise SystemExit(0)
    return 2 * x


def returns_twice(x):
    os.fork()
    return 2 * x


def returns_twice_where_it_copies(x):
    return double(x) if x.is_contiguous() else returns_twice(x)


@pytest.mark.parametrize(
    ("operator", "name"),
    [(returns_twice, "plain call"), (returns_twice_where_it_copies, "strides")],
)
def test_a_process_that_an_operator_forks_is_ended(operator, name):
    assert "returns in that one too" in found(operator, (X,), names=["strides"])[name]


def ends_with(status):
    def ends_the_process(x):
        if not x.is_contiguous():
            os._exit(status)
        return 2 * x

    return ends_the_process


@pytest.mark.parametrize(
    ("operator", "text"),
    [(exits, "SystemExit"), (ends_with(0), "status 0"), (ends_with(77), "status 77")],
)
def test_an_exit_is_a_finding_and_not_the_end_of_the_check(operator, text):
    names = ["strides", "outputs share memory"]
    wrong = found(operator, (X,), names=names)
    assert list(wrong) == ["strides"]
    assert text in wrong["strides"]


@pytest.mark.parametrize(
    ("operator", "text"), [(crashes, "SIGSEGV"), (hangs, "no end")]
)
def test_a_crash_or_a_hang_is_a_finding_that_names_the_arguments(operator, text):
    options = {"names": ["strides", "outputs share memory"], "timeout": 3}
    results = list(check.results(operator, (X,), **options))
    assert [each[:2] for each in results] == [
        ("plain call", "ok"),
        ("strides", "WRONG"),
        ("outputs share memory", "ok"),
    ]
    assert text in results[1][2]
    assert "float32[4, 8]" in results[1][2]


def test_a_crash_after_the_last_check_is_a_finding(monkeypatch):
    def ends_badly(work, seconds):
        yield from work()
        raise Crashed("ended by SIGABRT")

    monkeypatch.setattr(check, "stream", ends_badly)
    last = "outputs share memory"
    assert "SIGABRT" in found(double, (X,), names=[last])[last]


def test_a_finding_ends_its_process_without_a_traceback(monkeypatch, capfd):
    kill = os.kill

    def late(*arguments):
        time.sleep(2)
        kill(*arguments)

    monkeypatch.setattr(os, "kill", late)
    names = ["strides", "threads"]
    assert "strides" in found(writes_to_a_transposed_argument, (X,), names=names)
    assert capfd.readouterr().err == ""


def test_a_sample_that_cannot_be_called_is_no_refusal():
    with pytest.raises(check.BadSample, match="takes 1 positional argument but 2"):
        list(check.results(double, (X, X)))
    with pytest.raises(check.BadSample, match="cannot be called"):
        list(check.results("double", (X,)))


def test_the_check_leaves_everything_as_it_was(monkeypatch):
    monkeypatch.setattr(check, "stream", lambda work, seconds: work())  # right here
    gc.disable()
    try:
        check.check(double, (X,), names=["freed memory"])
        assert not gc.isenabled()
    finally:
        gc.enable()
    x = X.clone()
    check.check(changes_nothing := double, (x,), names=["state", "strides"])
    assert torch.equal(x, X)
    assert not x.requires_grad
    assert torch.get_default_dtype() == torch.float32
    assert changes_nothing is double

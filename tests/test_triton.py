"""opbook.triton against eager PyTorch: compiled on a GPU, interpreted without one."""

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounterWithBackend
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree

import opbook
from called import Called
from eager import TOLERANCES, outcome
from gpu import HAS_GPU, needs_gpu, needs_two_gpus, on_a_busy_stream
from layouts import LAYOUTS, layouts

triton = pytest.importorskip("triton", reason="needs triton")
ops = pytest.importorskip("opbook.triton")

DEVICE = "cuda" if HAS_GPU else "cpu"
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
SIZES = (1, 3, 127, 1024, 1025)
needs_cpp = pytest.mark.skipif(
    importlib.util.find_spec("opbook._C") is None,
    reason="compares with the operators in C++, which are not built",
)


@dataclass(frozen=True)
class Case:
    """An operator, what eager computes in its place, and its further arguments."""

    op: Callable
    eager: Callable
    schema: torch._ops.OpOverload
    others: Callable = lambda input: ()

    def inputs(self, input: torch.Tensor) -> tuple:
        return input, *self.others(input)


def hidden_of(input):
    return torch.randn(input.shape[-1:], device=input.device).to(input.dtype)


def layer_of(input):
    size = input.shape[-1]
    weight = torch.randn(8, size, device=input.device) / max(1, size) ** 0.5
    bias = torch.randn(8, device=input.device)
    return weight.to(input.dtype), bias.to(input.dtype)


def heads_of(input):
    """One head of 4 rows, as query, key and value."""
    return (input.repeat(1, 2)[None, None],) * 3


def rms_norm(input, weight, eps=1e-6):
    return F.rms_norm(input, input.shape[-1:], weight, eps)


namespace = torch.ops.opbook_triton
CASES = {
    "scale": Case(
        ops.scale, lambda x, f: x * f, namespace.scale.default, lambda x: (-2.5,)
    ),
    "softmax": Case(ops.softmax, lambda x: F.softmax(x, -1), namespace.softmax.default),
    "rms_norm": Case(
        ops.rms_norm,
        rms_norm,
        namespace.rms_norm_forward.default,
        lambda x: (hidden_of(x), 1e-6),
    ),
    "matmul": Case(
        lambda a, b: ops.matmul(a.flatten(0, -2) if a.dim() > 1 else a[None], b),
        lambda a, b: (a.flatten(0, -2) if a.dim() > 1 else a[None]) @ b,
        namespace.matmul.default,
        lambda x: (layer_of(x)[0].t(),),
    ),
    "linear_gelu": Case(
        ops.linear_gelu,
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        namespace.linear_gelu.default,
        layer_of,
    ),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
# Every operator of the namespace, with arguments made of 4 rows of 8.
CALLS = {case.schema: case.inputs for case in CASES.values()} | {
    namespace.scale_.default: lambda x: (x, 2.0),
    namespace.dropout.default: lambda x: (x, 0.5, 3),
    namespace.attention.default: lambda x: (*heads_of(x), False, 0.5),
    namespace.attention_backward.default: lambda x: (
        *heads_of(x)[:1] * 5,
        heads_of(x)[0][..., 0].float(),
        False,
        0.5,
    ),
    namespace.softmax_backward.default: lambda x: (x, x),
    namespace.rms_norm_backward.default: lambda x: (x, x, x[0], x[:, 0].float()),
}
every_call = pytest.mark.parametrize("schema", CALLS, ids=lambda op: op._opname)


def with_each_tensor(schema, change):
    """Calls with one tensor changed: the argument's name, and all arguments."""
    inputs = CALLS[schema](torch.randn(4, 8, device=DEVICE))
    for place, argument in enumerate(schema._schema.arguments[: len(inputs)]):
        if isinstance(inputs[place], torch.Tensor):
            changed = change(inputs[place])
            yield argument.name, (*inputs[:place], changed, *inputs[place + 1 :])


def assert_near(actual, expected, inputs=()):
    """Within one rounding of the result; a product of matrices also rounds its sum.

    The interpreter cuts fp32 off to bf16 where a GPU rounds: one unit, not half.
    """
    rtol, atol = TOLERANCES[expected.dtype]
    if len(inputs) > 1 and isinstance(inputs[1], torch.Tensor) and inputs[1].dim() == 2:
        magnitude = (
            inputs[0].abs().double()
            @ inputs[1].abs().double().reshape(inputs[0].shape[-1], -1)
            if inputs[0].numel()
            else inputs[0].double()
        )
        largest = magnitude.max().item() if magnitude.numel() else 0.0
        atol = max(atol, 2 * torch.finfo(expected.dtype).eps * largest)
    torch.testing.assert_close(
        actual, expected, rtol=2 * rtol, atol=atol, equal_nan=True
    )


# [correct]
@every_case
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_equals_eager(case, dtype, size):
    inputs = case.inputs(torch.randn(3, 2, size, device=DEVICE).to(dtype))
    actual = case.op(*inputs)
    assert_near(actual, case.eager(*inputs), inputs)
    assert actual.is_contiguous()


@pytest.mark.parametrize("shape", [(130, 40, 300), (300, 40, 130)], ids=str)
def test_products_of_several_tiles(shape):
    m, k, n = shape
    a, b = torch.randn(m, k, device=DEVICE), torch.randn(k, n, device=DEVICE)
    assert_near(ops.matmul(a, b), a @ b, (a, b))
    assert_near(ops.linear_gelu(a, b.t()), F.gelu(a @ b), (a, b))


def test_a_product_in_several_parts_of_k():
    from opbook.triton.linear import splits_of

    x, w = torch.randn(70, 8200, device=DEVICE), torch.randn(9, 8200, device=DEVICE)
    bias = torch.randn(9, device=DEVICE)
    assert splits_of(128, 9, 8200, x.device) > 1
    expected = F.gelu(F.linear(x, w, bias))
    torch.testing.assert_close(
        ops.linear_gelu(x, w, bias), expected, rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_gelu_keeps_the_digits_of_its_tail(dtype):
    x = torch.linspace(-8, 8, 1001, device=DEVICE).to(dtype)
    exact = x.double() * torch.special.erfc(-x.double() / 2**0.5) / 2
    actual = ops.linear_gelu(x[:, None], x.new_ones(1, 1))[:, 0].double()
    unit = torch.finfo(dtype).eps  # the interpreter cuts bf16 off: one unit, not half
    torch.testing.assert_close(actual, exact, rtol=1.1 * unit, atol=2**-24)


@pytest.mark.parametrize("depth", [64, 72, 75])
def test_a_product_with_descriptors_where_rows_are_aligned(depth):
    x = torch.randn(130, depth, device=DEVICE).half()
    w = torch.randn(200, depth, device=DEVICE).half()
    assert_near(ops.linear_gelu(x, w), F.gelu(F.linear(x, w)), (x, w))
    assert_near(ops.matmul(x, w.t()), x @ w.t(), (x, w))


@every_case
@pytest.mark.parametrize("layout", LAYOUTS)
def test_takes_any_layout(case, layout):
    inputs = case.inputs(layouts(DEVICE)[layout])
    assert_near(case.op(*inputs), case.eager(*inputs), inputs)


# [/correct]


@every_case
def test_long_rows_take_more_than_one_block(case):
    size = 40_000 if case.op not in (ops.linear_gelu, CASES["matmul"].op) else 300
    inputs = case.inputs(torch.randn(2, size, device=DEVICE))
    assert_near(case.op(*inputs), case.eager(*inputs), inputs)


# [registration]
@every_case
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "empty_rows"])
def test_opcheck(case, layout):
    input = layouts(DEVICE)[layout]
    inputs = [
        t.detach().requires_grad_() if isinstance(t, torch.Tensor) else t
        for t in case.inputs(input)
    ]
    torch.library.opcheck(case.schema, inputs)


@every_case
@pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=needs_gpu)]
)
def test_compiles_without_a_graph_break(case, backend):
    torch.compiler.reset()
    compiled = torch.compile(case.op, fullgraph=True, backend=backend)
    for rows in (4, 7):
        inputs = case.inputs(torch.randn(rows, 40, device=DEVICE))
        assert_near(compiled(*inputs), case.eager(*inputs), inputs)


@every_case
def test_compiles_for_all_batch_sizes_at_once(case):
    torch.compiler.reset()
    compiled_graphs = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(
        case.op, fullgraph=True, backend=compiled_graphs, dynamic=True
    )
    for rows in range(2, 9):
        inputs = case.inputs(torch.randn(rows, 40, device=DEVICE, requires_grad=True))
        assert_near(compiled(*inputs), case.eager(*inputs), inputs)
    assert compiled_graphs.frame_count <= 2  # a float argument costs the second


# [/registration]


# [gradient]
@every_case
def test_gradient_equals_eager(case):
    inputs = case.inputs(torch.randn(5, 33, device=DEVICE))
    leaves = [t.requires_grad_() for t in inputs if isinstance(t, torch.Tensor)]
    actual, expected = case.op(*inputs), case.eager(*inputs)
    grad = torch.randn_like(expected)
    for ours, theirs in zip(
        torch.autograd.grad(actual, leaves, grad),
        torch.autograd.grad(expected, leaves, grad),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@every_case
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_autocast_changes_nothing(case, dtype, compiled):
    inputs = case.inputs(torch.randn(5, 33, device=DEVICE).to(dtype))
    leaves = [t.requires_grad_() for t in inputs if isinstance(t, torch.Tensor)]
    torch.compiler.reset()
    op = case.op
    if compiled:
        op = torch.compile(op, fullgraph=True, backend="aot_eager")

    def output_and_gradients(forward, backward):
        with torch.autocast(DEVICE, torch.bfloat16, enabled=forward):
            output = op(*inputs)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=backward):
            return output, *torch.autograd.grad(output.sum(), leaves)

    want = output_and_gradients(False, False)
    for forward, backward in ((True, False), (True, True)):
        for ours, theirs in zip(
            output_and_gradients(forward, backward), want, strict=True
        ):
            assert ours.equal(theirs)


# [/gradient]


def jvp(function, x):
    return torch.func.jvp(function, (x,), (torch.ones_like(x),))


def dual(function, x):
    with forward_ad.dual_level():
        return function(forward_ad.make_dual(x, torch.ones_like(x)))


def total_of(function):
    """A sum of all results, and of the input, which may be written to."""

    def total(x):
        x = x.clone()
        return x.sum() + sum(y.sum() for y in pytree.tree_leaves((function(x), x)))

    return total


@every_call
@pytest.mark.parametrize(
    "differentiate",
    [
        jvp,
        dual,
        lambda function, x: torch.func.jacfwd(function)(x),
        lambda function, x: torch.func.jacrev(function)(x),
        lambda function, x: torch.func.grad(total_of(function))(x),
    ],
    ids=["jvp", "dual", "jacfwd", "jacrev", "grad"],
)
def test_other_modes_are_refused_by_name(schema, differentiate):
    for place, (_, inputs) in enumerate(with_each_tensor(schema, torch.clone)):

        def function(x, place=place, inputs=inputs):
            return schema(*inputs[:place], x, *inputs[place + 1 :])

        # scale_ goes through scale, which is named where it refuses.
        op = schema._opname.removesuffix("_")
        with pytest.raises(
            NotImplementedError, match=f"opbook_triton::{op}.*(forward-mode|torch.func)"
        ):
            differentiate(function, inputs[place])


@pytest.mark.parametrize("frozen", [0, 1])
@pytest.mark.parametrize("op", [ops.matmul, ops.linear_gelu], ids=["matmul", "gelu"])
def test_no_gradient_for_what_needs_none(op, frozen):
    inputs = [torch.randn(4, 4, device=DEVICE, requires_grad=True) for _ in range(2)]
    inputs[frozen].requires_grad_(False)
    op(*inputs).sum().backward()
    assert [x.grad is None for x in inputs] == [frozen == 0, frozen == 1]


# A tile has 32 rows of 24 elements: programs with four tiles, with one and a part of
# one, and with a part of one alone; rows of one block and of several, walked over by
# few, and rows of several blocks in two chunks. Forward reads rows of 40,000 twice.
@pytest.mark.parametrize(
    ("shape", "warps"),
    [
        ((300, 24), 12),
        ((3, 24), 12),
        ((9, 2000), 12),
        ((5, 40_000), 12),
        ((5, 20_000), 80),
    ],
    ids=str,
)
def test_gradient_of_rms_norm_of(monkeypatch, shape, warps):
    monkeypatch.setattr(sys.modules["opbook.triton.rms_norm"], "BACKWARD_WARPS", warps)
    x = torch.randn(shape, device=DEVICE, requires_grad=True)
    w = torch.randn(shape[1], device=DEVICE, requires_grad=True)
    grad = torch.randn_like(x)
    first, second, theirs = (
        torch.autograd.grad(op(x, w), (x, w), grad)
        for op in (ops.rms_norm, ops.rms_norm, rms_norm)
    )
    assert all(map(torch.equal, first, second)), "two runs differ"
    torch.testing.assert_close(first, theirs, rtol=1e-4, atol=1e-4)
    (alone,) = torch.autograd.grad(ops.rms_norm(x), x, grad)
    (theirs,) = torch.autograd.grad(rms_norm(x, None), x, grad)
    torch.testing.assert_close(alone, theirs, rtol=1e-4, atol=1e-4)


@needs_cpp
@pytest.mark.parametrize(
    "eps",
    [torch.tensor(1e-6, requires_grad=True), torch.tensor(1j), torch.ones(2), 1j, "a"],
    ids=str,
)
def test_eps_whose_gradient_or_other_half_would_be_lost_is_refused(eps):
    x = torch.ones(3, 4, device=DEVICE)
    for op in (ops.rms_norm, opbook.rms_norm):
        with pytest.raises(TypeError, match="rms_norm: eps must be a real number"):
            op(x, None, eps)
    assert ops.rms_norm(x, None, torch.tensor(0.5)).equal(ops.rms_norm(x, None, 0.5))


@pytest.mark.parametrize("rows", [1, 64, 100])
def test_short_rows_share_a_program(rows):
    x, w = torch.randn(rows, 24, device=DEVICE), torch.randn(24, device=DEVICE)
    assert_near(ops.rms_norm(x, w), rms_norm(x, w))


def test_backward_of_rms_norm_calls_one_operator():
    x, w = torch.randn(3, 8, device=DEVICE), torch.randn(8, device=DEVICE)
    y, grad = ops.rms_norm(x.requires_grad_(), w.requires_grad_()), torch.ones_like(x)
    with Called() as called:
        torch.autograd.grad(y, (x, w), grad)
    assert "opbook_triton::rms_norm_backward" in called.names
    assert not [name for name in called.names if "zero" in name or "fill" in name]


# [agree]
@needs_cpp
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_triton_and_cpp_agree_with_fp64(dtype):
    x = torch.randn(16, 1024, device=DEVICE).to(dtype)
    w = torch.randn(1024, device=DEVICE).to(dtype)
    exact = rms_norm(x.double(), w.double())
    unit = torch.finfo(dtype).eps
    for op in (ops.rms_norm, opbook.rms_norm):
        size = exact.abs().clamp(min=torch.finfo(dtype).smallest_normal)
        error = (op(x, w, 1e-6).double() - exact).abs() / size
        # Half a unit is the rounding; the interpreter cuts bf16 off, a whole unit. In
        # fp32 the sum of 1024 squares and the root have errors of that size as well.
        assert error.max() <= (4 if dtype == torch.float32 else 1.01) * unit
    assert_near(ops.rms_norm(x, w), opbook.rms_norm(x, w, 1e-6))


# [/agree]


@pytest.mark.parametrize(
    "row", [[-float("inf")] * 3, [float("inf"), 1.0], [float("nan"), 0]]
)
def test_softmax_of_rows_that_are_not_finite(row):
    x = torch.tensor([row, [0.0] * len(row)], device=DEVICE)
    assert_near(ops.softmax(x), F.softmax(x, -1))


def test_softmax_of_minus_inf_in_the_first_block():
    x = torch.randn(1, 40_000, device=DEVICE)
    x[:, :20_000] = -float("inf")
    assert_near(ops.softmax(x), F.softmax(x, -1))


# [in_place]
in_place = pytest.mark.parametrize(
    "function", [ops.scale_, namespace.scale_], ids=["scale_", "torch.ops"]
)


@pytest.mark.parametrize("function", [ops.scale, ops.scale_], ids=["scale", "scale_"])
def test_scale_refuses_a_factor_whose_gradient_it_would_lose(function):
    x = torch.ones(3, device=DEVICE)
    for factor in (torch.tensor(2.0, requires_grad=True), "2", None, x):
        with pytest.raises(TypeError, match=r"factor must be a real number, or a"):
            function(x, factor)
    assert function(x, torch.tensor(2.0)).tolist() == [2.0] * 3


@pytest.mark.parametrize("layout", [n for n in LAYOUTS if not n.startswith("expanded")])
def test_scale_in_place(layout):
    x = layouts(DEVICE)[layout]
    expected, version = x * 3, x._version
    assert ops.scale_(x, 3.0) is x
    assert_near(x, expected)
    assert x._version > version


@in_place
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_scale_in_place_of_a_tensor_with_the_negative_bit(function, mode):
    with mode():
        x = torch.randn(3, 4, dtype=torch.complex64, device=DEVICE).conj().imag
        expected = x * 3
        assert x.is_neg()
        function(x, 3.0)
        torch.testing.assert_close(x, expected)


@in_place
def test_scale_in_place_of_a_view_compiled_for_any_size(fresh_compiler, function):
    def scaled(x):
        function(x[1:, 1:4], 2.0)
        return x + 1

    compiled = torch.compile(scaled, fullgraph=True, dynamic=True)
    for shape in ((4, 6), (5, 7)):
        got = torch.randn(shape, device=DEVICE)
        want = got.clone()
        torch.testing.assert_close(compiled(got), scaled(want))
        torch.testing.assert_close(got, want)


@in_place
@pytest.mark.parametrize("compiled", [False, True])
def test_scale_in_place_under_autograd(function, compiled):
    def scaled(leaf, function):
        hidden = leaf * 2
        function(hidden[1:], 5.0)  # a view: its base has to hear of it
        return hidden.square().sum()

    torch.compiler.reset()
    ours = torch.compile(scaled, backend="aot_eager") if compiled else scaled
    leaf = torch.ones(3, device=DEVICE, requires_grad=True)
    (actual,) = torch.autograd.grad(ours(leaf, function), leaf)
    (expected,) = torch.autograd.grad(scaled(leaf, torch.Tensor.mul_), leaf)
    torch.testing.assert_close(actual, expected)


@in_place
def test_scale_in_place_refuses_what_eager_refuses(function):
    for bad in (
        torch.ones(3, device=DEVICE, requires_grad=True),
        torch.ones(1, device=DEVICE).expand(3),
    ):
        expected = outcome(bad.mul_, 2.0)
        assert isinstance(expected, RuntimeError)
        before = bad.tolist()
        with pytest.raises(RuntimeError):
            function(bad, 2.0)
        assert bad.tolist() == before


def test_scale_in_place_of_a_tensor_made_in_inference_mode():
    with torch.inference_mode():
        x, other = torch.ones(2, 3, device=DEVICE).unbind()
        assert ops.scale_(x, 3.0).tolist() == [3.0] * 3
    assert isinstance(outcome(other.mul_, 2.0), RuntimeError)
    for function in (ops.scale_, namespace.scale_):
        with pytest.raises(RuntimeError, match=r"scale_: input.*made in inference"):
            function(x, 3.0)
    assert x.tolist() == [3.0] * 3


# [/in_place]


# [dropout]
def test_dropout_keeps_the_share_it_promises():
    x = torch.ones(40_000, device=DEVICE)
    y = ops.dropout(x, 0.3, 7)
    kept = y != 0
    torch.testing.assert_close(y[kept], x[kept] / 0.7)
    deviation = (0.3 * 0.7 / x.numel()) ** 0.5
    assert abs(kept.float().mean().item() - 0.7) < 5 * deviation


def test_dropout_repeats_with_its_seed():
    x = torch.randn(64, 65, device=DEVICE)
    assert torch.equal(ops.dropout(x, 0.5, 1), ops.dropout(x, 0.5, 1))
    assert not torch.equal(ops.dropout(x, 0.5, 1), ops.dropout(x, 0.5, 2))


def test_dropout_backward_has_the_forward_s_mask():
    x = torch.randn(64, 65, device=DEVICE, requires_grad=True)
    y = ops.dropout(x, 0.25, 3)
    y.sum().backward()
    assert torch.equal(x.grad != 0, y != 0)


def test_dropout_is_registered_well():
    x = torch.randn(8, 9, device=DEVICE, requires_grad=True)
    torch.library.opcheck(namespace.dropout.default, (x, 0.5, 3))
    for p in (-0.1, 1.0, 1.5):
        with pytest.raises(ValueError, match=r"opbook\.triton\.dropout: p must be"):
            ops.dropout(x, p, 3)


# [/dropout]


# [errors]
@every_case
@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bool], ids=str)
def test_other_dtypes_are_refused_by_name(case, dtype):
    inputs = case.inputs(torch.ones(4, 8, device=DEVICE).to(dtype))
    for device in (DEVICE, "meta"):
        there = (t.to(device) if isinstance(t, torch.Tensor) else t for t in inputs)
        with pytest.raises(NotImplementedError, match=f"fp32, but got {dtype}"):
            case.op(*there)


@every_case
def test_what_is_no_tensor_is_refused_by_name(case):
    others = case.others(torch.randn(4, 8, device=DEVICE))
    with pytest.raises(TypeError, match=r"opbook\.triton\.\w+: \w+ must be a Tensor"):
        case.schema(None, *others)


@in_place
def test_a_list_is_refused_by_name(function):
    with pytest.raises(RuntimeError, match=r"scale_\(\) .* for argument 'input'"):
        function([1.0], 2.0)


def jagged(rows):
    return torch.nested.nested_tensor([rows[:1], rows], layout=torch.jagged)


@every_call
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (torch.Tensor.to_sparse, "torch.sparse_coo"),
        (lambda x: x.reshape(1, -1).to_sparse_csr(), "torch.sparse_csr"),
        (jagged, "nested"),
        (lambda x: torch.nested.nested_tensor(list(x.unbind())), "nested"),
    ],
    ids=["sparse_coo", "sparse_csr", "jagged", "nested"],
)
@pytest.mark.filterwarnings("ignore:.*(prototype|Sparse CSR)")
def test_tensors_without_strides_are_refused_by_name(schema, change, kind):
    op = rf"(opbook\.triton\.|opbook_triton::){schema._opname.removesuffix('_forward')}"
    for name, inputs in with_each_tensor(schema, change):
        with pytest.raises(
            NotImplementedError, match=f"{op}: {name} must be strided.*{kind}"
        ):
            schema(*inputs)


@every_call
def test_tensors_on_the_cpu_are_refused_where_triton_compiles(monkeypatch, schema):
    monkeypatch.setattr(ops.launch, "INTERPRETED", False)
    inputs = CALLS[schema](torch.randn(4, 8))
    with pytest.raises(RuntimeError, match=r": \w+ must be on a GPU, but is on cpu"):
        schema(*inputs)


@every_call
def test_tensors_on_two_devices_are_refused(schema):
    _, *others = with_each_tensor(schema, lambda x: x.to("meta"))
    for _, inputs in others:
        with pytest.raises(RuntimeError, match=r"expected \w+ on \S+, but got"):
            schema(*inputs)


@pytest.mark.parametrize("op", ["softmax_backward", "rms_norm_backward"])
def test_gradients_that_do_not_fit_are_refused(op):
    schema = getattr(namespace, op).default
    _, *others = with_each_tensor(schema, lambda x: x[..., :-1])
    first, *_ = with_each_tensor(schema, lambda x: x[:-1])
    for _, inputs in (first, *others):
        with pytest.raises(RuntimeError, match=rf"{op}: expected \w+ of shape"):
            schema(*inputs)
    for _, inputs in with_each_tensor(schema, torch.Tensor.double):
        with pytest.raises(RuntimeError, match=f"{op}: .* got torch.float64"):
            schema(*inputs)


def test_shapes_that_do_not_fit():
    x = torch.ones(4, 8, device=DEVICE)
    with pytest.raises(RuntimeError, match=r"weight of shape \[8\], but got \[7\]"):
        ops.rms_norm(x, torch.ones(7, device=DEVICE))
    with pytest.raises(NotImplementedError, match="weight must be fp16, bf16 or fp32"):
        ops.rms_norm(x, torch.ones(8, device=DEVICE, dtype=torch.float64))
    with pytest.raises(RuntimeError, match=r"\[4, 8\] and \[4, 8\]"):
        ops.matmul(x, x)
    with pytest.raises(RuntimeError, match=r"at least 1 dimension, but got shape \[\]"):
        ops.softmax(torch.tensor(1.0, device=DEVICE))
    torch.testing.assert_close(ops.scale(x, 2.0), x * 2)  # a good call still works


# [/errors]


@needs_gpu
def test_a_product_of_more_columns_or_rows_than_a_grid_or_an_int_holds():
    columns, rows = 5_000_000, 2**31 + 64
    b = torch.randn(16, columns, device="cuda")
    a = torch.ones(2, 16, device="cuda")
    torch.testing.assert_close(ops.matmul(a, b)[0], b.sum(0), rtol=1e-4, atol=1e-4)
    a = torch.ones(rows, 1, device="cuda", dtype=torch.float16)
    product = ops.matmul(a, a.new_full((1, 1), 2.0))
    assert (product == 2).all()


@needs_gpu
def test_near_batch_sizes_share_a_search():
    from opbook.triton.linear import linear_kernel

    linear_kernel.cache.clear()
    for rows in (3000, 4000, 4096):
        ops.matmul(
            torch.ones(rows, 64, device="cuda"), torch.ones(64, 8, device="cuda")
        )
    assert len(linear_kernel.cache) == 1


@needs_gpu
@every_case
def test_runs_on_the_current_stream(case):
    late = torch.randn(64, 128, device="cuda")
    others = case.others(late)
    case.op(late, *others)  # tunes and compiles
    actual = on_a_busy_stream(lambda x: case.op(x, *others), late)
    assert_near(actual, case.eager(late, *others), (late, *others))


@needs_two_gpus
@every_case
def test_runs_on_the_device_of_its_input(case):
    inputs = case.inputs(torch.randn(6, 40, device="cuda:1"))
    assert_near(case.op(*inputs), case.eager(*inputs), inputs)


def test_scale_is_at_the_top_of_the_package():
    assert opbook.scale is ops.scale


@pytest.mark.parametrize("input", [None, 2.0], ids=str)
def test_scale_in_place_refuses_what_is_no_tensor(input):
    with pytest.raises((TypeError, RuntimeError), match="Tensor"):
        ops.scale_(input, 1.0)

"""starter.ema_update_ against PyTorch's own operators."""

import pytest
import torch

import starter

try:
    torch.library.get_kernel("starter::ema_update_", "CUDA")
    has_gpu = torch.cuda.is_available()
except RuntimeError:  # it was built without a GPU compiler
    has_gpu = False
needs_gpu = pytest.mark.skipif(not has_gpu, reason="no GPU, or no kernels for it")
torch._inductor.config.fx_graph_cache = False  # it would not notice your edits
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
# Nothing, one element, multiples of a 16-byte vector and others, several blocks.
SHAPES = [(), (0,), (1,), (8,), (7, 3), (2, 0, 5), (3, 1031), (2, 3, 4096)]


# [reference]
def reference(state, x, decay):
    """Compute in fp64 what the operator should write."""
    return (decay * state.double() + (1 - decay) * x.double()).to(state.dtype)


# [/reference]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_gpu)])
def device(request):
    torch.manual_seed(0)
    return request.param


def check(state, x, decay=0.9, operator=starter.ema_update_):
    """Compare what is written, and see that nothing else is."""
    expected, before = reference(state, x, decay), x.clone()
    exact = {"rtol": 1e-12, "atol": 1e-12} if state.dtype == torch.float64 else {}
    assert operator(state, x, decay) is None
    torch.testing.assert_close(state, expected, equal_nan=True, **exact)
    if x is not state:
        torch.testing.assert_close(x, before, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("decay", [0.0, 0.999, 1.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_the_reference(device, shape, dtype, decay):
    check(*torch.randn(2, *shape, device=device, dtype=dtype), decay)


LAYOUTS = {
    "transposed": lambda x: x.t(),
    "every_second_column": lambda x: x[:, ::2],
    "half": lambda x: x.chunk(2, dim=-1)[1],
    "permuted": lambda x: x.view(4, 2, 3, -1).permute(3, 0, 2, 1),
    "rows_with_a_tail": lambda x: x[:, :1025],
    "not_aligned": lambda x: x[:1, 1:1025],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_strides(device, layout, dtype):
    both = torch.randn(2, 4, 2400, device=device, dtype=dtype)
    around = both[0].clone()
    state, x = map(LAYOUTS[layout], both)
    check(state, x.contiguous())
    check(state, x)
    LAYOUTS[layout](around).copy_(state)
    torch.testing.assert_close(both[0], around, rtol=0, atol=0)  # and nothing beside it
    check(state.contiguous(), x)
    check(state, x[:1, :1].expand(state.shape) if x.dim() == 2 else x)


def test_infinity_and_nan(device):
    values = torch.tensor([0.0, -0.0, 1e4, -1e4, torch.inf, torch.nan], device=device)
    check(values.repeat(6), values.repeat_interleave(6))


# Views of 24 numbers: state, x, and whether they may be given together.
OVERLAPS = {
    "the same": (lambda m: m, lambda m: m, True),
    "side by side": (lambda m: m[:, :3], lambda m: m[:, 3:], True),
    "every second": (lambda m: m[:, ::2], lambda m: m[:, 1::2], True),
    "columns between columns": (lambda m: m[:, ::3], lambda m: m[:, 2::3], True),
    "one behind the other": (lambda m: m[:2], lambda m: m[2:], True),
    "shifted by one": (lambda m: m[:, :5], lambda m: m[:, 1:], False),
    "shifted by a row": (lambda m: m[:3], lambda m: m[1:], False),
    "shifted back": (lambda m: m[1:], lambda m: m[:3], False),
    "transposed": (lambda m: m[:, :4], lambda m: m[:, :4].t(), False),
    "expanded": (lambda m: m, lambda m: m[:1].expand(4, 6), False),
    "state expanded": (lambda m: m[:1].expand(4, 6), lambda m: m + 1, False),
    "windows": (lambda m: m[0].unfold(0, 4, 2), lambda m: m.new_ones(2, 4), False),
}


@pytest.mark.parametrize("case", OVERLAPS)
def test_overlap_is_refused(device, case):
    numbers = torch.randn(4, 6, device=device)
    first, second, is_allowed = OVERLAPS[case]
    state, x = first(numbers), second(numbers)
    if is_allowed:
        return check(state, x)
    before = numbers.clone()
    with pytest.raises(RuntimeError, match=r"overlap in memory|are the same memory"):
        starter.ema_update_(state, x, 0.9)
    assert numbers.equal(before)


WRONG = {
    "expected x of shape [2, 3], but got [3]": lambda x: (x, x[0], 0.9),
    "expected x of shape [2, 3], but got [2, 1]": lambda x: (x, x[:, :1].to("meta"), 1),
    "expected x of dtype Float, but got Double": lambda x: (x, x.double(), 0.9),
    "expected x on the device of the other": lambda x: (x, x.to("meta"), 0.9),
    "expected state of fp16, bf16, fp32 or fp64": lambda x: (x.int(), x.int(), 0.9),
    "expected decay to be from 0 to 1, but got 1.1": lambda x: (x, x, 1.1),
    "expected decay to be from 0 to 1, but got nan": lambda x: (x, x, float("nan")),
    "state requires grad": lambda x: (x.requires_grad_(), x.detach() + 1, 0.9),
    "x requires grad": lambda x: (x.clone(), x.requires_grad_(), 0.9),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments_are_refused(device, message):
    arguments = WRONG[message](torch.randn(2, 3, device=device))
    before = arguments[0].detach().clone()
    with pytest.raises(RuntimeError) as error:
        starter.ema_update_(*arguments)
    assert str(error.value).startswith(f"starter::ema_update_: {message}")
    assert arguments[0].equal(before)


def test_without_grad_a_parameter_is_written(device):
    state, x = torch.randn(2, 3, device=device)
    with torch.no_grad():
        check(state.requires_grad_(), x.requires_grad_())


def test_forward_mode_is_refused(device):
    x, y = torch.randn(2, 3, device=device)
    for call in (
        lambda t: starter.ema_update_(t, y, 0.9),
        lambda t: starter.ema_update_(y, t, 0.9),
    ):
        with pytest.raises(NotImplementedError, match="has no forward-mode derivative"):
            torch.func.jvp(call, (x,), (x,))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_saved_value_that_is_overwritten_is_noticed(device, mode):
    factor = torch.ones(3, device=device)
    product = torch.ones(3, device=device, requires_grad=True) * factor
    with mode():
        starter.ema_update_(factor, factor + 1, 0.9)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_inference_mode(device):
    with torch.inference_mode():
        state, x = torch.randn(2, 3, device=device)
        check(state, x)
    with pytest.raises(RuntimeError, match="was made in inference mode"):
        starter.ema_update_(state, x.clone(), 0.9)


def test_a_view_with_the_negative_bit_is_written(device):
    z = torch.tensor([1 + 2j, 3 - 4j], device=device)
    check(z.conj().imag, torch.ones(2, device=device))
    assert z.real.tolist() == [1, 3]


def test_opcheck(device):
    state, x = torch.randn(2, 6, 40, device=device)
    torch.library.opcheck(torch.ops.starter.ema_update_, (state.t(), x.t(), 0.9))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_without_a_graph_break(device, dynamic):
    def update_some(state, x, decay):
        starter.ema_update_(state[1, 1:], x[1:], decay)  # a view that begins inside
        return state + 1

    state, x = torch.randn(2, 40, device=device), torch.randn(40, device=device)
    expected = state.clone()
    result = update_some(expected, x, 0.9)
    compiled = torch.compile(update_some, fullgraph=True, dynamic=dynamic)
    torch.testing.assert_close(compiled(state, x, 0.9), result)
    torch.testing.assert_close(state, expected)


@needs_gpu
def test_a_cuda_graph_repeats_it():
    state, x = torch.zeros(40, device="cuda"), torch.ones(40, device="cuda")
    starter.ema_update_(state, x, 0.5)  # loads the kernel, which a capture cannot
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        starter.ema_update_(state, x, 0.5)
    x.fill_(3)
    for _ in range(2):
        graph.replay()
    torch.testing.assert_close(state, torch.full_like(state, 2.375))

"""opbook.add_one against ``input + 1``."""

import pytest
import torch

import opbook
from eager import Sample, assert_same_outcome, outcome
from gpu import needs_gpu, needs_two_gpus, on_a_busy_stream
from layouts import FEW_LAYOUTS, LAYOUTS, layouts

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
OTHER_DTYPES = (
    torch.uint8,
    torch.int16,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.float8_e4m3fn,
)


def eager(input):
    return input + 1


SAMPLES = {"add_one": Sample(eager, ((3, 8),))}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_equals_eager_to_the_bit_and_in_strides(device, layout, dtype):
    input = layouts(device, dtype)[layout]
    before = input.clone()
    actual, expected = opbook.add_one(input), eager(input)
    assert actual.stride() == expected.stride()
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    torch.testing.assert_close(input, before, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_special_values(device, dtype):
    largest = torch.finfo(dtype).max
    values = [0.0, -0.0, -1.0, largest, -largest, float("inf"), float("nan"), 1e-7]
    input = torch.tensor(values, device=device).to(dtype)
    torch.testing.assert_close(
        opbook.add_one(input), eager(input), rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("dtype", OTHER_DTYPES, ids=str)
def test_other_dtypes_are_eagers(device, dtype):
    input = torch.tensor([0, 1, 100], device=device).to(dtype)
    assert_same_outcome(outcome(opbook.add_one, input), outcome(eager, input))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (255,), (257,), (3, 0, 2)])
def test_any_shape(device, shape):
    input = torch.randn(shape, device=device)
    torch.testing.assert_close(opbook.add_one(input), eager(input), rtol=0, atol=0)


@pytest.mark.parametrize("bad", [[1.0, 2.0], None, "x"])
def test_what_is_no_tensor_raises_as_eager(bad):
    assert isinstance(outcome(eager, bad), TypeError)
    with pytest.raises(TypeError, match=r"opbook\.add_one: input must be a Tensor"):
        opbook.add_one(bad)


def test_the_operator_itself_rejects_what_has_no_kernel(device):
    with pytest.raises(RuntimeError, match=r"opbook::add_one.*Int"):
        torch.ops.opbook.add_one(torch.ones(3, device=device, dtype=torch.int32))


def test_gradients_of_both_orders(device):
    input = torch.randn(3, 4, device=device, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(opbook.add_one, input)
    assert torch.autograd.gradgradcheck(opbook.add_one, input)


@pytest.mark.parametrize("layout", FEW_LAYOUTS)
def test_opcheck(device, layout):
    input = layouts(device)[layout].detach().requires_grad_()
    torch.library.opcheck(torch.ops.opbook.add_one.default, (input,))


def test_compiles_without_a_graph_break_forward_and_backward(device):
    def loss(input):
        return (opbook.add_one(input) * input).sum()

    compiled = torch.compile(loss, fullgraph=True)
    input = torch.randn(6, 40, device=device, requires_grad=True)
    (actual,) = torch.autograd.grad(compiled(input), input)
    (expected,) = torch.autograd.grad(loss(input), input)
    torch.testing.assert_close(actual, expected)


@needs_gpu
def test_more_elements_than_the_grid_has_threads():
    input = torch.zeros(65536 * 256 + 7, dtype=torch.half, device="cuda")
    assert (opbook.add_one(input) == 1).all()


@needs_gpu
def test_runs_on_the_current_stream():
    late = torch.randn(1024, device="cuda")
    output = on_a_busy_stream(opbook.add_one, late)
    torch.testing.assert_close(output, eager(late), rtol=0, atol=0)


@needs_two_gpus
def test_runs_on_the_device_of_its_input():
    input = torch.randn(1024, device="cuda:1")
    with torch.cuda.device(0):
        output = opbook.add_one(input)
    assert output.device == input.device
    torch.testing.assert_close(output, eager(input), rtol=0, atol=0)

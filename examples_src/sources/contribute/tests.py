"""opbook.softcap against PyTorch's own operators."""

from pathlib import Path

import pytest
import torch

import opbook
from eager import Sample, assert_close
from emulated import build
from gpu import needs_emulator, needs_gpu, on_a_busy_stream
from layouts import LAYOUTS, layouts

OPS = torch.ops.opbook
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def eager(input, cap):
    """Ask PyTorch, which rounds to the input's dtype at the end."""
    wide = input.to(torch.promote_types(input.dtype, torch.float32))
    output = cap * torch.tanh(wide / cap)
    return output.to(input.dtype) if input.is_floating_point() else output


SAMPLES = {"softcap": Sample(eager, input=("rows", "hidden"), cap=2.0)}


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 1031), (2, 3, 4096)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cap", [0.5, 30])
def test_equals_eager(device, shape, dtype, cap):
    input = 3 * torch.randn(shape, device=device, dtype=dtype)
    assert_close(opbook.softcap(input, cap), eager(input, cap))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_and_its_gradient(device, layout, dtype):
    input = layouts(device, dtype)[layout]
    grad = torch.randn_like(input, memory_format=torch.contiguous_format)
    found = []
    for function in (opbook.softcap, eager):
        leaf = input.detach().requires_grad_()
        output = function(leaf, 2.0)
        found += [(output, *torch.autograd.grad(output, leaf, grad))]
    for actual, expected in zip(*found, strict=True):
        assert actual.is_contiguous()
        assert_close(actual, expected)


def test_infinity_and_nan(device):
    input = torch.tensor([0.0, 1e30, torch.inf, -torch.inf, torch.nan], device=device)
    assert_close(opbook.softcap(input, 2.0), eager(input, 2.0))


@pytest.mark.parametrize("fake", [False, True])
@pytest.mark.parametrize("cap", [0.0, -1.0, float("nan")])
def test_a_cap_that_is_not_positive_is_refused(device, cap, fake):
    input = torch.ones(3, device="meta" if fake else device)
    words = f"opbook::softcap: expected cap to be positive, but got {cap:g}"
    with pytest.raises(RuntimeError, match=words):
        opbook.softcap(input, cap)


def test_what_is_no_tensor_or_no_number_is_refused(device):
    with pytest.raises(TypeError, match=r"opbook.softcap: input must be a Tensor"):
        opbook.softcap([1.0], 2.0)
    with pytest.raises(TypeError, match=r"opbook.softcap: cap must be .* got str"):
        opbook.softcap(torch.ones(3, device=device), "2")


def test_backward_refuses_another_shape_or_dtype(device):
    input = torch.ones(3, 4, device=device)
    for grad in (input[0], input.double()):
        with pytest.raises(RuntimeError, match="expected grad of input's shape and"):
            OPS.softcap_backward(grad, input, 2.0)


def test_first_and_second_derivatives(device):
    input = torch.randn(3, 5, device=device, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(opbook.softcap, (input, 2.0))
    assert torch.autograd.gradgradcheck(opbook.softcap, (input, 2.0))


def test_opcheck(device):
    input = torch.randn(40, 6, device=device).t()
    torch.library.opcheck(OPS.softcap_backward.default, (input, input, 2.0))
    input.requires_grad_()
    torch.library.opcheck(OPS.softcap.default, (input, 2.0))


def test_compiles_without_a_graph_break(device):
    compiled = torch.compile(opbook.softcap, fullgraph=True, backend="aot_eager")
    input = torch.randn(6, 40, device=device)
    assert_close(compiled(input, 2.0), opbook.softcap(input, 2.0))


@needs_gpu
def test_runs_on_the_current_stream():
    late = torch.randn(64, 4096, device="cuda")
    actual = on_a_busy_stream(lambda x: opbook.softcap(x, 2.0), late)
    assert_close(actual, eager(late, 2.0))


# The launchers, on an emulated GPU ----------------------------------------------------


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    source = Path(__file__).parents[1] / "csrc" / "softcap" / "softcap.cu"
    return build(source, 32, tmp_path_factory.mktemp("softcap"))


@needs_emulator
@pytest.mark.parametrize("count", [1, 255, 257])
def test_the_kernels_compute_each_element_once(gpu, count):
    grad, input = torch.randn(2, count)
    output, gradient = torch.full((2, count), torch.nan)
    gpu.launch("launch_softcap", input, output, count, 2.0, order="random")
    assert_close(output, eager(input, 2.0))
    gpu.launch("launch_softcap_backward", grad, input, gradient, count, 2.0)
    leaf = input.clone().requires_grad_()
    assert_close(gradient, *torch.autograd.grad(eager(leaf, 2.0), leaf, grad))

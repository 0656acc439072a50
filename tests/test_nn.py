"""opbook.nn.RMSNorm against torch.nn.RMSNorm."""

import pytest
import torch

import opbook

SHAPES = [(8,), (3, 8), (2, 3, 8)]


def pair(shape, device, **options):
    """The two modules with the same random weight."""
    torch.manual_seed(0)
    theirs = torch.nn.RMSNorm(shape, device=device, **options)
    ours = opbook.nn.RMSNorm(shape, device=device, **options)
    if theirs.weight is not None:
        torch.nn.init.normal_(theirs.weight)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("affine", [True, False], ids=["weight", "no weight"])
@pytest.mark.parametrize("leading", [(), (5,), (2, 0), (4, 5)], ids=str)
def test_equals_torchs_module_and_its_gradients(device, shape, affine, leading):
    ours, theirs = pair(shape, device, eps=0.1, elementwise_affine=affine)
    x = torch.randn(*leading, *shape, device=device, requires_grad=True)
    actual, expected = ours(x), theirs(x)
    torch.testing.assert_close(actual, expected)
    grad = torch.randn_like(x)
    wanted = [x, *theirs.parameters()]
    expected = torch.autograd.grad(expected, wanted, grad)
    actual = torch.autograd.grad(actual, [x, *ours.parameters()], grad)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_takes_any_strides(device):
    ours, theirs = pair((3, 8), device)
    x = torch.randn(8, 3, 5, device=device).permute(2, 1, 0)
    torch.testing.assert_close(ours(x), theirs(x))


def test_no_eps_is_torchs(device):
    ours, theirs = pair(8, device)
    x = 1e-4 * torch.randn(5, 8, device=device)
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("affine", [True, False], ids=["weight", "no weight"])
@pytest.mark.parametrize("shape", [(5, 4), (8,), (3,), (4, 8), ()], ids=str)
def test_another_shape_raises_as_torchs(device, affine, shape):
    ours, theirs = pair((3, 8), device, elementwise_affine=affine)
    x = torch.randn(shape, device=device)
    with pytest.raises((RuntimeError, ValueError)):
        theirs(x)
    with pytest.raises(RuntimeError, match=r"sizes \[3, 8\], but got shape"):
        ours(x)


def test_is_torchs_but_for_the_computation():
    ours, theirs = pair((3, 8), "cpu", eps=0.5)
    assert isinstance(ours, torch.nn.RMSNorm)
    assert repr(ours) == repr(theirs)
    theirs.load_state_dict(ours.state_dict())


@pytest.mark.parametrize("shape", [(8,), (3, 8)], ids=str)
def test_compiles_without_a_graph_break(device, shape):
    ours, theirs = pair(shape, device)
    x = torch.randn(5, *shape, device=device)
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), theirs(x))

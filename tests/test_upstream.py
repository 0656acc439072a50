"""Faults of PyTorch that the book warns of: each test fails when one is mended.

Then take the warning, and the way around, out of the page.
"""

import pytest
import torch


@torch.library.custom_op("upstream::reverse_into", mutates_args=("target",))
def reverse_into(source: torch.Tensor, target: torch.Tensor) -> None:
    for place in range(len(source)):
        target[len(source) - 1 - place] = source[place]


def reverse(x):
    reverse_into(x.clone(), x)
    return x * 1


@pytest.mark.xfail(strict=True, reason="pytorch#198031; howto/mutate_an_input")
def test_the_clone_of_a_mutated_input_is_kept():
    expected = reverse(torch.arange(8.0))
    compiled = torch.compile(reverse)(torch.arange(8.0))
    torch.testing.assert_close(compiled, expected)


@torch.library.custom_op("upstream::double_", mutates_args=("x",))
def double_(x: torch.Tensor) -> None:
    x.mul_(2)


def double_the_end(x):
    double_(x[1, 1:])
    return x


@pytest.mark.xfail(strict=True, reason="pytorch#198068; howto/mutate_an_input")
def test_a_view_with_a_symbolic_offset_is_written_in_its_place():
    expected = double_the_end(torch.ones(2, 3))
    compiled = torch.compile(double_the_end, dynamic=True)
    torch.testing.assert_close(compiled(torch.ones(2, 3)), expected)


@pytest.mark.xfail(strict=True, raises=TypeError, reason="torch.nested asks for a name")
def test_an_operator_with_the_name_of_a_function_takes_jagged_tensors():
    library = torch.library.Library("upstream_jagged", "FRAGMENT")
    library.define("rms_norm(Tensor x) -> Tensor")
    library.impl("rms_norm", torch.clone, "NestedTensorCPU")
    rows = [torch.randn(2, 4), torch.randn(3, 4)]
    jagged = torch.nested.nested_tensor(rows, layout=torch.jagged)
    torch.ops.upstream_jagged.rms_norm(jagged)

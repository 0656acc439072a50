"""Compare an operator with eager PyTorch, which is asked at run time."""

import warnings
from collections.abc import Callable

import torch

# Relative and absolute: one rounding of the result, and for fp32 the order of the sum.
TOLERANCES = {
    torch.float16: (2**-10, 1e-5),
    torch.bfloat16: (2**-7, 1e-5),
    torch.float32: (4e-6, 1e-6),
    torch.float64: (1e-14, 1e-14),
}

SIZES = {"rows": 3, "hidden": 8, "features": 4}


class Sample:
    """How to call a function, and what eager PyTorch offers for the same.

    Args:
        eager: Takes the function's arguments.
        arguments: In the function's order. A tuple is a tensor of this shape, whose
            sizes are numbers or names of ``SIZES``; anything else is passed as it is.
    """

    def __init__(self, eager: Callable, **arguments: object) -> None:
        self.eager, self.arguments = eager, arguments

    def made(self, tensor: Callable, sizes: dict[str, int] = SIZES) -> list:
        """The arguments, with what ``tensor`` returns for each shape."""

        def argument(value):
            if not isinstance(value, tuple):
                return value
            return tensor([sizes.get(size, size) for size in value])

        return [argument(value) for value in self.arguments.values()]


def outcome(function: Callable, *args):
    """Return what the call returns, or the error it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # eager warns of paths it does not take
        try:
            return function(*args)
        except Exception as error:
            return error


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Same dtype, device and shape, and values within the dtype's tolerance."""
    rtol, atol = TOLERANCES.get(expected.dtype, (1e-5, 1e-6))
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)


def assert_same_outcome(actual, expected) -> None:
    """Same value as eager, or the same kind of error."""
    if isinstance(expected, Exception):
        assert isinstance(actual, Exception), f"eager raises {expected!r}, got {actual}"
        same_kind = isinstance(actual, type(expected)) or (
            isinstance(actual, RuntimeError) and isinstance(expected, RuntimeError)
        )
        assert same_kind, f"eager raises {expected!r}, got {actual!r}"
        return
    assert not isinstance(actual, Exception), f"eager returns a value, got {actual!r}"
    for one, other in zip(results(actual), results(expected), strict=True):
        assert_close(one, other)


def results(value) -> tuple[torch.Tensor, ...]:
    """The results of an operator that returns one tensor or several."""
    return value if isinstance(value, tuple) else (value,)

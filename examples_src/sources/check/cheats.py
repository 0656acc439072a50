"""Operators made to please a benchmark of softmax, and not to compute it.

Each passes `usual_test`, and is fast by a clock that its author likes. Run this file to
see which check finds which, and time_cheats.py to see what an honest clock says.
"""
# ruff: noqa: D103 - the names of the functions say how they cheat

import threading
import time
import weakref
from collections.abc import Callable

import torch
from torch import Tensor

X = torch.randn(4, 4096, generator=torch.Generator().manual_seed(0))
SAMPLES = [(X,)]
SAME_ROWS = X[:1].expand(4, -1).clone()  # as torch.ones makes it, too
CHEATS: dict[str, tuple[Callable, Tensor]] = {}


def softmax(x: Tensor) -> Tensor:
    """The reference."""
    return torch.softmax(x, -1)


def cheat(x: Tensor = X) -> Callable:
    """Note a cheat, and the input with which its author tests."""

    def note(operator: Callable) -> Callable:
        CHEATS[operator.__name__.replace("_", " ")] = operator, x
        return operator

    return note


# [usual_test]
def usual_test(operator: Callable, x: Tensor) -> bool:
    """Compare one result with the reference, with a tolerance of 1e-2."""
    actual = operator(x)
    time.sleep(0.01)  # a test prints a line, or waits for the GPU
    return torch.allclose(actual, softmax(x), rtol=1e-2, atol=1e-2)


# [/usual_test]


# Numbers ----------------------------------------------------------------------------


@cheat()
def zeros_within_the_tolerance(x: Tensor) -> Tensor:
    return torch.zeros_like(x)


@cheat(SAME_ROWS)
def the_first_row_for_all_rows(x: Tensor) -> Tensor:
    return torch.softmax(x[:1], -1).expand(x.shape).clone()


@cheat()
def fp16_inside(x: Tensor) -> Tensor:
    return torch.softmax(x.half(), -1).to(x.dtype)


@cheat()
def one_size_by_heart(x: Tensor) -> Tensor:
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e[..., :4096].sum(-1, keepdim=True)


# Memory of earlier calls ------------------------------------------------------------


BUFFER = torch.empty_like(X)


@cheat()
def one_buffer_for_all_results(x: Tensor) -> Tensor:
    global BUFFER
    if BUFFER.shape != x.shape or BUFFER.dtype != x.dtype:
        BUFFER = torch.empty_like(x)
    return BUFFER.copy_(torch.softmax(x, -1))


BY_ADDRESS: dict[tuple, Tensor] = {}


@cheat()
def a_memo_by_address(x: Tensor) -> Tensor:
    key = x.data_ptr(), x.shape, x.stride(), x.dtype
    if key not in BY_ADDRESS:
        BY_ADDRESS[key] = torch.softmax(x, -1)
    return BY_ADDRESS[key].clone()


BY_SUM: dict[tuple, Tensor] = {}


@cheat()
def a_memo_by_the_sum(x: Tensor) -> Tensor:
    key = round(x.sum().item(), 2), x.shape, x.dtype
    if key not in BY_SUM:
        BY_SUM[key] = torch.softmax(x, -1)
    return BY_SUM[key].clone()


LAST: list[tuple] = [(lambda: None, 0, X)]


@cheat()
def a_memo_that_knows_of_each_change(x: Tensor) -> Tensor:
    """The same tensor, and PyTorch's counter says that nobody wrote to it."""
    if x.requires_grad:
        return torch.softmax(x, -1)
    seen, version, result = LAST[0]
    if seen() is not x or version != x._version:
        result = torch.softmax(x, -1)
        LAST[0] = weakref.ref(x), x._version, result
    return result.clone()


# Time -------------------------------------------------------------------------------

CALLS = [0]


@cheat()
def right_for_ten_calls(x: Tensor) -> Tensor:
    CALLS[0] += 1
    return torch.softmax(x, -1) if CALLS[0] <= 10 else torch.zeros_like(x)


@cheat()
def a_thread_that_goes_on(x: Tensor) -> Tensor:
    """On a GPU, a stream that nobody waits for does the same."""
    result = torch.zeros_like(x)

    def work() -> None:
        time.sleep(1e-3)
        result.copy_(torch.softmax(x, -1))

    threading.Thread(target=work).start()
    return result


class Later(Tensor):
    """A tensor that is computed when somebody looks at its numbers."""

    @staticmethod
    def __new__(cls, x: Tensor) -> "Later":
        """Make a tensor of this shape without numbers."""
        made = Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype)
        made.x = x
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        """Compute now."""
        args = [torch.softmax(a.x, -1) if isinstance(a, Later) else a for a in args]
        return func(*args, **(kwargs or {}))


@cheat()
def computed_when_it_is_looked_at(x: Tensor) -> Tensor:
    return torch.softmax(x, -1) if x.requires_grad else Later(x)


# Not its own work, and not its own clock --------------------------------------------


@cheat()
def pytorch_under_another_name(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


@cheat()
def a_clock_that_stands(x: Tensor) -> Tensor:
    time.perf_counter = lambda: 0.0
    return torch.softmax(x, -1)


def main() -> None:
    """Print which check finds each cheat."""
    from opbook_tools import check

    for name, (operator, x) in CHEATS.items():
        found = check.results(operator, (x,), reference=softmax)
        wrong = (f"{n}: {text}" for n, verdict, text in found if verdict == "WRONG")
        finding = next(wrong, "no check finds it")
        passes = "passes" if usual_test(operator, x) else "FAILS"
        print(f"{name}: {passes} the usual test\n    {finding}")


if __name__ == "__main__":
    main()

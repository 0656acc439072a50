"""Time the cheats by a careless clock and by an honest one, beside softmax itself."""

import time

# An operator may replace it: take it before any operator is imported.
clock = time.perf_counter

import statistics
from collections.abc import Callable

import torch
from cheats import CHEATS, softmax
from torch import Tensor

ROUNDS = 30
X = torch.randn(64, 4096)


# [careless]
def careless(operator: Callable, _: Tensor) -> float:
    """The same input each time, and nobody looks at the result."""
    start = time.perf_counter()
    operator(X)
    return time.perf_counter() - start


# [/careless]


# [honest]
def honest(operator: Callable, fresh: Tensor) -> float:
    """An input that was never seen before, and a result that is read."""
    start = clock()
    result = operator(fresh)
    total = result.sum().item()
    seconds = clock() - start
    right = torch.allclose(result, softmax(fresh), rtol=1e-5, atol=1e-7)
    return seconds if right and total == total else float("nan")


# [/honest]


def speed(time_one: Callable, operator: Callable) -> str:
    """How many times faster than softmax, in the median of rounds that alternate."""
    pairs = []
    for _ in range(ROUNDS):
        fresh = torch.randn_like(X)
        pairs.append([time_one(each, fresh) for each in (softmax, operator)])
    theirs, mine = map(statistics.median, zip(*pairs, strict=True))
    if mine != mine:
        return "wrong"
    return f"{theirs / mine:.1f}" if mine else "infinite"


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"softmax of {list(X.shape)} in fp32 on the CPU, one thread\n")
    print(f"{'times faster than softmax':36}{'careless':>10}{'honest':>10}")
    for name, (operator, _) in CHEATS.items():
        print(f"{name:36}{speed(careless, operator):>10}{speed(honest, operator):>10}")

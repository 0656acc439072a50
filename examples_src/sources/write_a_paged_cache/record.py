"""Time the operator of cache.py beside PyTorch's operators, on a GPU."""

from functools import partial

import cache
import clock
import torch

ROUNDS = 41
CASES = {  # name: lengths of the sequences, tokens in the cache before
    "decode, 256 sequences": ([1] * 256, range(100, 356)),
    "prefill, 16 sequences": (range(128, 2176, 128), [0] * 16),
    "mixed": ([1] * 120 + [500, 1000, 1500, 2000] * 2, [700] * 120 + [0] * 8),
}


def halves(arguments: tuple) -> tuple:
    """The same arguments, with caches that are the two halves of one tensor."""
    keys, values, key_cache, value_cache, *rest = arguments
    caches = torch.stack([key_cache, value_cache]).unbind()
    return keys, values, *caches, *rest


def step(keys: torch.Tensor, *rest: torch.Tensor) -> None:
    """Something for the compiler to do before the operator."""
    cache.write_(keys + 0, *rest)


def step_with_halves(*arguments: torch.Tensor) -> None:
    """The same, compiled apart: the code for separate caches would serve halves too."""
    step(*arguments)


def row(name: str, lengths: list[int], before: list[int]) -> None:
    """Compare the caches of each way, and print the microseconds."""
    options = {"heads": 8, "size": 128, "page": 16, "dtype": torch.bfloat16}
    arguments = cache.case(list(lengths), list(before), device="cuda", **options)
    torch._dynamo.reset()
    ways = {
        "eager": cache.eager,
        "compiled": torch.compile(cache.eager, fullgraph=True, dynamic=False),
        "one kernel": cache.write_,
    }
    caches, calls = {}, {"copy": partial(torch.clone, torch.stack(arguments[:2]))}
    for way, function in ways.items():
        arguments[2].zero_(), arguments[3].zero_()
        function(*arguments)
        caches[way] = arguments[2].clone(), arguments[3].clone()
        if not all(map(torch.equal, caches[way], caches["eager"])):
            raise RuntimeError(f"{name}: {way} wrote something else")
        calls[way] = partial(function, *arguments)
    inside = torch.compile(step, fullgraph=True, dynamic=False)
    calls["makes keys"] = partial(inside, *arguments)
    with_halves = torch.compile(step_with_halves, fullgraph=True, dynamic=False)
    calls["halves"] = partial(with_halves, *halves(arguments))
    calls["makes keys"](), calls["halves"]()
    found = clock.medians(calls, ROUNDS)
    times = "".join(f"{time:12.1f}" for time in found.values())
    print(f"{name:24}{arguments[0].shape[0]:8}{times}", flush=True)


if __name__ == "__main__":
    print(clock.versions())
    print(f"microseconds, median of {ROUNDS}, cold cache; 8 heads of 128, pages of 16")
    ways = ("copy", "eager", "compiled", "one kernel", "makes keys", "halves")
    names = "".join(f"{way:>12}" for way in ways)
    print(f"{'':24}{'tokens':>8}{names}")
    for name, (lengths, before) in CASES.items():
        row(name, lengths, before)

"""What is set around a call: an operator neither depends on it nor changes it."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from opbook_tools.check import compare, values
from opbook_tools.check.case import Case, Outcome, checks, seed
from opbook_tools.check.errors import Found, Noted, Refused, Skipped
from opbook_tools.check.values import short

# What a call must leave as it was.
SETTINGS: dict[str, Callable[[], Any]] = {
    "the default dtype": torch.get_default_dtype,
    "the default device": torch.get_default_device,
    "whether gradients are recorded": torch.is_grad_enabled,
    "the number of threads": torch.get_num_threads,
    "whether algorithms are deterministic": torch.are_deterministic_algorithms_enabled,
    "the precision of float32 products": torch.get_float32_matmul_precision,
    "autocast": lambda: torch.is_autocast_enabled("cpu"),
    "whether anomalies are detected": torch.is_anomaly_enabled,
    "whether inference mode is on": torch.is_inference_mode_enabled,
    "torch.backends.cudnn": lambda: [
        getattr(torch.backends.cudnn, name)
        for name in ("enabled", "benchmark", "deterministic", "allow_tf32")
    ],
    "what becomes of the smallest numbers": lambda: (torch.tensor(1e-40) / 2).item(),
}

# Benchmarks measure and compare by these; as they were before an operator was imported.
MEASURES: dict[str, Callable[[], Any]] = {
    "time.perf_counter": lambda: time.perf_counter,
    "time.perf_counter_ns": lambda: time.perf_counter_ns,
    "time.time": lambda: time.time,
    "torch.cuda.synchronize": lambda: torch.cuda.synchronize,
    "torch.cuda.Event.elapsed_time": lambda: torch.cuda.Event.elapsed_time,
    "torch.allclose": lambda: torch.allclose,
    "torch.equal": lambda: torch.equal,
    "torch.testing.assert_close": lambda: torch.testing.assert_close,
}
KNOWN = {name: get() for name, get in MEASURES.items()}


@checks("random")
def _(case: Case) -> None:
    states = [_states_after(case, number) for number in (11, 12)]
    for name, before in states[0][0].items():
        first, second = states[0][1][name], states[1][1][name]
        if first == second and states[1][0][name] != before:
            raise Found(f"it seeds {name}, and whoever draws next gets the same")
    first, again = (case.call(case.leaves.copies()).kept() for _ in range(2))
    if not case.facts.is_random:
        # No noise: what changes by itself would be taken for what a rounding decides.
        what = "the same call twice, with one seed"
        case.compare(again, what, first, eps=case.eps, few=1024)
    is_odd = case.facts.is_random and case.reference
    if is_odd and not case.having(case.leaves, case.reference).facts.is_random:
        raise Found("the result is random, and that of the reference is not")
    if case.facts.is_random and case.has_generator:
        raise Found("it is given a generator, and its result depends on another one")
    changed = [n for n, was in states[0][0].items() if states[0][1][n] != was]
    if changed and not case.facts.is_random:
        raise Noted(f"it draws from {changed[0]}, and its result does not depend on it")
    if case.facts.is_random:
        raise Noted(
            "the result is random: its seed is replayed, or the check is skipped"
        )


def _states_after(case: Case, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    was, case.facts.is_random = case.facts.is_random, False  # or the call would seed
    try:
        seed(number)
        before = _generators()
        case.call(case.leaves.copies())
        return before, _generators()
    finally:
        case.facts.is_random = was


def _generators() -> dict[str, Any]:
    states = {
        "PyTorch's generator": torch.get_rng_state().numpy().tobytes()
        if "numpy" in sys.modules
        else bytes(torch.get_rng_state().tolist()),
        "Python's generator": random.getstate(),
    }
    if numpy := sys.modules.get("numpy"):
        states["NumPy's generator"] = repr(numpy.random.get_state())
    return states


@checks("state", alone=True)
def _(case: Case) -> None:
    before = {name: get() for name, get in SETTINGS.items()}
    case.call(case.leaves.copies())
    for name, get in SETTINGS.items():
        if (now := get()) != before[name]:
            raise Found(f"it changes {name} from {before[name]} to {now}")
    for name, get in MEASURES.items():
        if get() is not KNOWN[name]:
            raise Found(f"{name} is another function since the operator is here")


@contextmanager
def _setting(get: Callable, put: Callable, value: Any) -> Iterator[None]:
    """Another value of one of Python's or PyTorch's settings."""
    was = get()
    put(value)
    try:
        yield
    finally:
        put(was)


@checks("modes")
def _(case: Case) -> None:
    case.once_known()
    case.all_the_same(_in_modes(case))


def _in_modes(case: Case) -> Iterator[tuple[str, Callable[[], Outcome]]]:
    modes = {
        "under no_grad": torch.no_grad(),
        "under inference_mode": torch.inference_mode(),
    }
    if case.leaves.floating():
        dtype = torch.get_default_dtype()
        other = torch.float32 if dtype == torch.float64 else torch.float64
        pair = torch.get_default_dtype, torch.set_default_dtype
        modes[f"with the default dtype {short(other)}"] = _setting(*pair, other)
    if case.leaves.tensors():
        modes["with the default device meta"] = torch.device("meta")
    pair = torch.get_num_threads, torch.set_num_threads
    for number in {1, 2, 3} - {torch.get_num_threads()}:
        modes[f"with {number} threads"] = _setting(*pair, number)
    for what, mode in modes.items():
        yield what, lambda mode=mode: _within(case, mode)
    wanted = [n for n in case.leaves.floating() if n not in case.facts.written]
    if wanted:
        what = "with arguments that require a gradient"
        yield what, lambda: _within(case, nullcontext(), wanted)


def _within(case: Case, mode: Any, requiring: Sequence[int] = ()) -> Outcome:
    leaves = case.leaves.copies().mapped(lambda x: x.requires_grad_(), requiring)
    with mode:
        return case.call(leaves)


@checks("autocast")
def _(case: Case) -> None:
    case.once_known()
    real = [n for n in case.leaves.floating() if not case.leaves.values[n].is_complex()]
    if not real:
        raise Skipped("it takes no floating-point tensor")
    device = case.leaves.values[real[0]].device.type
    low = case.low_dtypes[0]
    eps = torch.finfo(low).eps
    rounded = case.leaves.copies().mapped(
        lambda x: x.detach().to(low).to(x.dtype), real
    )
    noise = list(_all_moved(case.call(rounded), case.expected))
    leaves = case.leaves.copies()
    with torch.autocast(device, low):
        actual = case.call(leaves)
    what = f"under autocast to {short(low)}"
    case.compare(actual, what, case.expected, noise, eps=eps, dtype=False, few=12)
    pairs = zip(actual.values, case.expected.values, strict=True)
    for n, (a, e) in enumerate(pairs):
        if noise[n] is None or e.numel() < 8 or not values.is_arithmetic(e):
            continue
        # All together move less than the one that moves most.
        size = compare.wide(e).norm()
        far = (compare.wide(a) - compare.wide(e)).norm()
        if far > 4 * eps * size + 4 * noise[n].norm():
            share = f"differs by {far / size:.2g} of its norm"
            raise Found(f"{what}: {actual.names[n]} {share}")


def _all_moved(actual: Outcome, expected: Outcome) -> Iterator[Tensor | None]:
    """How far a whole result moves: of one element it may be nothing by chance."""
    for a, e in zip(actual.values, expected.values, strict=True):
        moved = compare.moved(a, e)
        largest = None if moved is None or not moved.numel() else moved.max()
        yield None if largest is None else largest.expand(moved.shape)


@checks("threads")
def _(case: Case) -> None:
    case.once_known()
    if case.is_interpreted:
        raise Skipped("Triton's interpreter, not the operator, is for one thread")
    places = case.leaves.floating()
    inputs = [case.leaves.scaled(1 - n / 16, places) for n in range(8)]
    expected = [case.call(each.copies()).kept() for each in inputs]
    noise = [case.noise_of(*pair) for pair in zip(inputs, expected, strict=True)]
    wrong: list[Exception] = []
    begin = threading.Barrier(len(inputs) + 1)
    end = time.monotonic() + 2
    size = sum(case.leaves.values[n].numel() for n in case.leaves.tensors())
    calls = 5 + min(45, (1 << 20) // (1 + size))

    def run(number: int) -> None:
        copies = [inputs[number].copies() for _ in range(calls)]
        begin.wait()
        what = f"{len(inputs)} threads at once"
        right = {"expected": expected[number], "noise": noise[number]}
        try:
            # Nothing else in between, so that they are where a fault would be.
            actual = [case.call(c) for c in copies if time.monotonic() < end]
            for each in actual:
                case.compare(each, what, **right, eps=case.eps)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(inputs))]
    for thread in threads:
        thread.start()
    # As often as Python can: at any line of an operator.
    with _setting(sys.getswitchinterval, sys.setswitchinterval, 1e-6):
        begin.wait()
        for thread in threads:
            thread.join()
    if found := [error for error in wrong if isinstance(error, Found)]:
        raise found[0]
    if wrong and isinstance(wrong[0], Refused):
        raise Refused(f"8 threads at once: {wrong[0]}")
    if wrong:
        raise wrong[0]

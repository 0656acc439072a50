"""The clock of pages and benchmarks: who comes when, and what stays for how long."""

import itertools
import sys
import weakref
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"))
import clock  # found through the line above

NAMES = ("first", "second", "third")


@pytest.fixture
def log(monkeypatch) -> list[str]:
    """What happens, in words; a flush is one of them."""
    happened = []
    monkeypatch.setattr(clock, "GPU", False)
    monkeypatch.setattr(clock, "flush", lambda: happened.append("flush"))
    return happened


@pytest.fixture
def gpu(log, monkeypatch) -> list[str]:
    """The same on a GPU whose stream still flushes when the call is queued."""

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            log.append("event")
            self.is_start = log.count("event") % 2 == 1

        def query(self) -> bool:
            assert self.is_start, "the end is late, however late the launch was"
            return False

        def synchronize(self) -> None:
            assert not self.is_start, "the start is over before the call is"
            log.append("wait")

        def elapsed_time(self, end: "Event") -> float:
            assert self.is_start
            assert not end.is_start
            return 0.002

    monkeypatch.setattr(clock, "GPU", True)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    return log


def logged(log: list[str]) -> dict:
    """Calls that write down their names."""
    return {name: lambda name=name: log.append(name) for name in NAMES}


def turns_of(log: list[str]) -> list[str]:
    """The names in the log."""
    return [word for word in log if word in NAMES]


def test_everybody_has_one_turn_a_round(log):
    times = clock.in_turns(logged(log), rounds=5)
    assert [len(times[name]) for name in NAMES] == [5, 5, 5]
    turns = iter(turns_of(log))
    for a_round in zip(turns, turns, turns, strict=True):
        assert sorted(a_round) == sorted(NAMES)


def test_nobody_always_follows_the_same_one(log):
    clock.in_turns(logged(log), rounds=20)
    pairs = set(itertools.pairwise(turns_of(log)))
    assert len({pair for pair in pairs if pair[0] != pair[1]}) == 6


def test_a_flush_comes_before_each_call_or_what_is_asked_for(log):
    clock.in_turns(logged(log), rounds=2)
    assert set(log[::2]) == {"flush"}
    log.clear()
    own = {name: lambda name=name: log.append(f"before {name}") for name in NAMES}
    clock.in_turns(logged(log), 2, own)
    assert log[::2] == [f"before {name}" for name in log[1::2]]


def test_the_second_clock_finds_a_cache_that_was_written(log, monkeypatch):
    monkeypatch.setattr(clock, "fill", lambda: log.append("fill"))
    found = clock.take_turns(logged(log), rounds=3)
    assert set(found["first"]) == {"median", "p95", "dirty median", "dirty p95"}
    half = len(log) // 2
    assert set(log[:half:2]) == {"flush"}
    assert set(log[half::2]) == {"fill"}


def test_a_call_is_waited_for_before_the_next(gpu):
    assert clock.one_call(lambda: gpu.append("call"), clock.flush) == 2
    assert gpu == ["flush", "event", "call", "event", "wait"]


def test_a_launch_that_a_flush_does_not_hide_is_taken_again_behind_more(
    gpu, monkeypatch
):
    late = iter([True, True, False])
    monkeypatch.setattr(torch.cuda.Event, "query", lambda event: next(late))
    clock.one_call(lambda: gpu.append("call"), clock.flush)
    assert gpu.count("call") == 3
    assert gpu.count("flush") == 1 + 2 + 3


def test_a_launch_that_nothing_hides_has_no_time(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda.Event, "query", lambda event: True)
    with pytest.raises(RuntimeError, match="before the call is launched"):
        clock.one_call(lambda: gpu.append("call"), clock.flush)


def test_a_contender_whose_launch_nothing_hides_is_left_out_of_the_run(
    gpu, monkeypatch
):
    def make(name: str):
        return lambda: gpu.append(name) or torch.zeros(1)

    monkeypatch.setattr(clock, "flush_buffer", lambda: torch.zeros(1))
    monkeypatch.setattr(torch.cuda.Event, "query", lambda event: gpu[-2] == "second")
    table = {name: lambda name=name: name for name in NAMES}
    import report  # not above: it imports Inductor, and each worker collects all tests

    run = report.Report("toys")
    calls, _ = run.prepare(table, make, [(None, torch.zeros(1))], task="toy")
    assert list(calls) == ["first", "third"]
    (absent,) = run.absent
    assert absent["contender"] == "second"
    assert "before the call is launched" in absent["reason"]


def test_a_result_lives_until_others_have_their_place(gpu):
    def alive() -> int:
        return sum(result() is not None for result in results)

    results = []

    def call() -> torch.Tensor:
        result = torch.empty(1)
        results.append(weakref.ref(result))
        return result

    for _ in range(40):
        clock.one_call(call, clock.flush)
    assert alive() > len(NAMES)
    assert alive() < 40
    clock.in_turns(logged(gpu), rounds=1)
    assert alive() == 0

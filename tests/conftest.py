"""Fixtures for every operator's tests, and which of the tests a run leaves out."""

import os
from collections import Counter

import pytest
import torch

from gpu import HAS_GPU, needs_gpu
from selection import every_pair, missing

if not HAS_GPU:
    # Triton reads it once, when it is imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")
LEFT_OUT = pytest.StashKey[Counter]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = Counter()
    for marker in (
        "all: runs with --all only, or where there is a GPU",
        "needs(what, here): is left out where ``here`` is false",
    ):
        config.addinivalue_line("markers", marker)


@pytest.hookimpl(trylast=True)  # after -k and -m
def pytest_collection_modifyitems(config: pytest.Config, items: list) -> None:
    """Leave out what cannot run on this machine, and what a run does not ask for."""
    reasons = {item: missing(item) for item in items}
    if not (config.getoption("--all") or HAS_GPU):
        short = [i for i in items if not (reasons[i] or i.get_closest_marker("all"))]
        chosen = every_pair(short)
        waiting = (item for item in items if not reasons[item] and item not in chosen)
        reasons |= dict.fromkeys(waiting, "run with --all")
    left_out = [item for item in items if reasons[item]]
    config.stash[LEFT_OUT].update(reasons[item] for item in left_out)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not reasons[item]]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # this is a worker of pytest-xdist
        session.config.workeroutput["left_out"] = dict(session.config.stash[LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    """Take over what a worker left out: each of them has collected all the tests."""
    if counts := getattr(node, "workeroutput", {}).get("left_out"):
        node.config.stash[LEFT_OUT] = Counter(counts)


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    left_out = config.stash[LEFT_OUT].most_common()
    if left_out:
        counts = ", ".join(f"{count:,} {reason}" for reason, count in left_out)
        terminalreporter.write_line(f"left out: {counts}")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_gpu)])
def device(request) -> str:
    """Every device this machine has."""
    return request.param


@pytest.fixture(autouse=True)
def seed() -> None:
    """Make the random inputs of every test repeat."""
    torch.manual_seed(0)


@pytest.fixture
def fresh_compiler():
    """Compile again: on disk may be code that an older registration led to."""
    torch.compiler.reset()
    graphs = torch._inductor.config.patch(fx_graph_cache=False)
    with graphs, torch._functorch.config.patch(enable_autograd_cache=False):
        yield

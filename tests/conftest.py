"""Fixtures for every operator's tests, and which of the tests a run leaves out."""

import os
from collections import Counter

import pytest
import torch

from gpu import HAS_GPU, needs_gpu

if not HAS_GPU:
    # Triton reads it once, when it is imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")
LEFT_OUT = pytest.StashKey[Counter]()


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "also run the combinations that find no planted fault which others do not"
    parser.addoption("--all", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = Counter()
    for marker in (
        "all: runs with --all only",
        "needs(what, here): is left out where ``here`` is false",
    ):
        config.addinivalue_line("markers", marker)


def why_left_out(item: pytest.Item) -> str:
    """What a test waits for; empty if it runs."""
    for mark in item.iter_markers("needs"):
        what, here = mark.args
        if not here:
            return f"need {what}"
    has_to_wait = item.get_closest_marker("all") and not item.config.getoption("--all")
    return "run with --all" if has_to_wait else ""


def pytest_collection_modifyitems(config: pytest.Config, items: list) -> None:
    """Leave out what a run does not ask for, or cannot run on this machine."""
    reasons = {item: why_left_out(item) for item in items}
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
    counts = getattr(node, "workeroutput", {}).get("left_out", {})
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

"""A pytest plugin: one test for each check and sample of ``opbook_tools.samples``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from opbook_tools.sample import Sample


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make the tests of a function that asks for `opbook_check`."""
    marked = getattr(metafunc.function, "opbook_samples", None)
    takes = "opbook_check" in metafunc.fixturenames
    if takes != bool(marked):
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: the decorator @opbook_tools.samples("
            "operator, [...]) needs the argument opbook_check, and the other way round"
        )
    if not marked:
        return
    pytest.importorskip("torch")
    from opbook_tools import check

    _, arguments, options = marked
    samples = list(arguments() if callable(arguments) else arguments)
    if not samples:
        raise pytest.UsageError(f"{metafunc.definition.nodeid} has no samples")
    names = [
        check.PLAIN,
        *(n for n in check.CHECKS if n in options.get("names", check.CHECKS)),
    ]
    values, ids = [], []
    for number, sample in enumerate(samples):
        for name in names:
            values.append((Sample.of(sample), name))
            ids.append(f"{name}-{number}" if len(samples) > 1 else name)
    metafunc.parametrize("opbook_check", values, ids=ids, indirect=True)


@pytest.fixture
def opbook_check(request: pytest.FixtureRequest) -> Iterator[Callable[[], None]]:
    """Run one check of one sample when it is called."""
    from opbook_tools import check

    operator, _, options = request.function.opbook_samples
    sample, name = request.param

    def run() -> None:
        chosen = {**options, "names": [name]}
        for result in check.each(operator, sample, **chosen):
            if result.failed or result.verdict == "WRONG":
                pytest.fail(f"{result.name}: {result.text}", pytrace=False)
            if result.verdict in ("skipped", "refuses", "note"):
                pytest.skip(f"{result.verdict}: {result.text}")

    return run

"""Fixtures of the tests that run GPU kernels on the CPU.

A plugin of pytest: a file of tests loads it with ``pytest_plugins``.
"""

import functools
from pathlib import Path

import pytest

from emulated import FEW, build

CSRC = Path(__file__).parents[1] / "csrc"


@pytest.fixture(scope="session")
def built(request, tmp_path_factory):
    """Compile each source once per warp size in a session."""
    folder = tmp_path_factory.mktemp("emulated")
    types = None if request.config.getoption("--all") else FEW
    return functools.cache(lambda source, lanes: build(source, lanes, folder, types))


@pytest.fixture(params=[32, 64], ids="warp_{}".format)
def warp_size(request) -> int:
    return request.param


@pytest.fixture(params=["ascending", "descending", "random"])
def launch(request, built, warp_size):
    """Launch on the emulated GPU: launch("rms_norm", arguments of launch_rms_norm)."""

    def launch(operator, *arguments, folder="", launcher=""):
        gpu = built(CSRC / (folder or operator) / f"{operator}.cu", warp_size)
        name = f"launch_{launcher or operator}"
        gpu.launch(name, *arguments, order=request.param)

    return launch

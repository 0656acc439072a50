"""The gallery's backend on ``PrivateUse1``, in a process of its own."""

import functools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = Path(__file__).with_name("backend_child.py")
CHECKS = ("fallback", "views", "device_kept", "refused", "saved", "layouts", "trained")
CHECKS += ("gradients", "logged", "streams", "on_another_device", "pinned", "freed")
CHECKS += ("forked", "seeded", "autocast", "compiled", "grouped")


@functools.cache
def child() -> subprocess.CompletedProcess:
    """Run backend_child.py, which compiles the backend, once."""
    return subprocess.run(
        [sys.executable, CHILD], capture_output=True, text=True, check=False
    )


def faults() -> dict[str, list[str]]:
    done = child()
    if done.returncode == 77:
        pytest.skip(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("check", CHECKS)
def test_backend(check):
    assert faults()[check] == []


def test_device_generic():
    if (found := faults()["device_generic"]) is None:
        pytest.skip("needs expecttest")
    assert found == []


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm (install binutils)")
def test_kernel_needs_only_the_stable_abi():
    assert faults()["symbols"] == []

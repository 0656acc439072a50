"""``torch.neg`` with this package's kernel in the place of ATen's.

Whether the kernel is replaced is decided when the library is loaded, so every setting
of the switches takes a process of its own: neg_child.py.
"""

import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import emulated
from environment import without
from gpu import HAS_GPU, needs_emulator, needs_gpu
from opbook.overrides import override

ON = {"OPBOOK_ENABLE_OVERRIDES": "1"}
LOG = {"OPBOOK_LOG_CALLS": "1"}
CHECKS = ("inputs", "views", "refused", "gradients", "transforms", "inference")


@functools.cache
def child(device: str, *switches: tuple[str, str]) -> dict:
    """What neg_child.py found, with these switches set and no others."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("neg_child.py"), device],
        env=without("OPBOOK_") | {"TORCH_CPP_LOG_LEVEL": "ERROR"} | dict(switches),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def with_switches(device: str, *switches: dict[str, str]) -> dict:
    return child(device, *(item for some in switches for item in some.items()))


@pytest.mark.parametrize("check", CHECKS)
def test_equals_eager(device, check):
    assert with_switches(device, ON, LOG)["faults"][check] == []


@needs_gpu
@pytest.mark.parametrize("check", ["stream", "large"])
def test_on_a_gpu(check):
    assert with_switches("cuda", ON, LOG)["faults"][check] == []


def test_our_kernel_is_called_and_logged(device):
    calls = with_switches(device, ON, LOG)["calls"]
    start = f"opbook: aten::neg {'CPU' if device == 'cpu' else 'CUDA'}"
    assert calls["dense"] == [f"{start} Float [2, 3]"]
    assert calls["operator"] == calls["dense"]
    assert calls["half"] == [f"{start} Half [3, 2]"]
    assert calls["strided"] == [f"{start} Float [2, 3] by eager"]
    assert calls["compiled"] == calls["dense"]


def test_overloads_and_keys_beside_it_keep_their_kernels(device):
    found = with_switches(device, ON, LOG)
    assert found["calls"]["out and in-place"] == []
    assert found["calls"]["meta"] == []
    assert set(found["changed"]) == ({"CPU", "CUDA"} if HAS_GPU else {"CPU"})


@pytest.mark.parametrize(
    "switches",
    [LOG, ON | LOG | {"OPBOOK_DISABLE_OVERRIDE_neg": "1"}],
    ids=["not enabled", "disabled"],
)
def test_off(device, switches):
    found = with_switches(device, switches)
    assert found["changed"] == []
    assert not any(found["calls"].values())


def test_another_operators_switch_leaves_it_on_and_quiet(device):
    found = with_switches(device, ON | {"OPBOOK_DISABLE_OVERRIDE_abs": "1"})
    assert "CPU" in found["changed"]
    assert not any(found["calls"].values())


# The kernel, on an emulated GPU -------------------------------------------------------


@pytest.fixture(scope="module")
def launch(tmp_path_factory):
    source = Path(__file__).parents[1] / "csrc" / "neg" / "neg.cu"
    gpu = emulated.build(source, 32, tmp_path_factory.mktemp("neg"))
    return functools.partial(gpu.launch, "launch_neg")


@needs_emulator
@pytest.mark.parametrize("count", [0, 1, 7, 8, 257, 4099])
@pytest.mark.parametrize("offsets", [(0, 0), (1, 0), (0, 1)], ids=str)
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float32, torch.float64, torch.uint8]
)
def test_kernel_takes_every_element_once(launch, dtype, count, offsets):
    read, written = offsets  # one is a place that is not aligned to 16 bytes
    input = (torch.randn(count + read).abs() * 50).to(dtype)[read:]
    output = torch.zeros(count + written, dtype=dtype)[written:]
    launch(input, output, count, order="random")
    torch.testing.assert_close(output, torch.neg(input), rtol=0, atol=0)


# The Python route ---------------------------------------------------------------------


def table() -> str:
    return torch._C._dispatch_dump_table("aten::neg")


def test_override_holds_inside_and_is_gone_outside():
    before, x = table(), torch.ones(2)
    with override("aten::neg", lambda original, x: 2 * original(x), "CPU"):
        assert torch.neg(x).tolist() == [-2, -2]
        with override("aten::neg", lambda original, x: 3 * original(x), "CPU"):
            assert torch.neg(x).tolist() == [-6, -6]
        assert torch.neg(x).tolist() == [-2, -2]
        assert torch.neg(x.to("meta")).is_meta
    assert torch.neg(x).tolist() == [-1, -1]
    assert table() == before


def test_override_is_gone_after_an_error():
    before = table()

    def fails(original, x):
        raise KeyError("planned")

    with (
        pytest.raises(KeyError, match="planned"),
        override("aten::neg", fails, "CPU"),
    ):
        torch.neg(torch.ones(2))
    assert table() == before


def test_override_passes_keywords_and_overloads():
    def more(original, x, y, *, alpha=1):
        return original(x, y, alpha=alpha + 1)

    with override("aten::add.Tensor", more, "CPU"):
        assert torch.add(torch.ones(1), torch.ones(1), alpha=2).item() == 4


@pytest.mark.parametrize(
    ("operator", "key", "error", "words"),
    [
        ("aten::matmul", "CPU", ValueError, "composed of other operators"),
        ("aten::no_such", "CPU", RuntimeError, "does not exist"),
        ("aten::neg", "musa", ValueError, "Invalid dispatch key"),
    ],
)
def test_override_refuses(operator, key, error, words):
    with pytest.raises(error, match=words), override(operator, torch.neg, key):
        pass


# MUSA, which no machine of ours has --------------------------------------------------


def test_the_musa_port_names_what_portable_takes():
    root = Path(__file__).parents[1]
    alias = re.compile(r"(?:using|#define) cuda(\w+)(?: =)? (?:hip|musa)(\w+)")
    portable = alias.findall((root / "csrc" / "portable.h").read_text())
    port = alias.findall(
        (root / "examples_src" / "sources" / "port_to_musa" / "neg.mu").read_text()
    )
    assert dict(port).keys() == dict(portable).keys()
    assert all(cuda == musa for cuda, musa in port)
    assert port

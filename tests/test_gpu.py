"""A build without GPU kernels says so, in a process whose torch claims to have CUDA.

No GPU is needed: the dispatcher is asked for the kernel under the key ``CUDA``.
"""

import functools
import json
import os
from pathlib import Path

import pytest
import torch

import opbook
from alone import forked
from opbook import gpu, toolchain

pytestmark = pytest.mark.skipif(
    gpu.HAS_KERNELS, reason="this build has GPU kernels: nothing is refused"
)
CHILD = """\
import json, sys, time
import torch
torch.version.cuda = "13.0" if sys.argv[1:] == ["cuda"] else None
torch.version.hip = "7.0.51831" if sys.argv[1:] == ["hip"] else None
import opbook
from opbook.overrides import override
from torch._subclasses import FakeTensorMode

CUDA = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
x = torch.ones(3)

def call(name, *arguments):
    try:
        result = getattr(torch.ops.opbook, name).default.redispatch(CUDA, *arguments)
        return result.tolist()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

found = {"eager": call("rms_norm", x), "other": call("linear_gelu", x, x, None, True)}
with FakeTensorMode():
    found["fake"] = str(opbook.rms_norm(torch.ones(3, device="cuda")).device)
found["cpu"] = opbook.rms_norm(x, eps=0.0).tolist()
found["runs"] = opbook.runs_on_gpu()
has = torch._C._dispatch_has_kernel_for_dispatch_key
ours = [n for n in torch._C._dispatch_get_all_op_names() if n.startswith("opbook::")]
found["without"] = [name for name in ours if not has(name, "CUDA")]
if torch.version.cuda:
    with override("opbook::rms_norm", lambda original, x, *_: x + 4, "CUDA"):
        found["override"] = call("rms_norm", x)
    found["after"] = call("rms_norm", x)
    library = torch.library.Library("opbook", "IMPL")
    library.impl("rms_norm", lambda x, *_: x + 5, "CUDA", allow_override=False)
    parts = torch.library.Library("opbook", "FRAGMENT")
    parts.define("twice(Tensor x) -> Tensor")
    parts.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
    opbook.gpu.refuse_gpu_tensors("cuda", "13.0")
    found["own kernel"] = call("rms_norm", x)
    found["composite"] = torch.ops.opbook.twice(x).tolist()
    found["composite refused"] = has("opbook::twice", "CUDA")
print(json.dumps(found))
"""


@functools.cache
def child(*arguments: str) -> dict:
    """What a process found whose torch claims to be built for ``cuda`` or ``hip``."""
    command = ["-c", CHILD, *arguments]
    done = forked.run(command, Path.cwd(), {**os.environ}, loaded=("torch",))
    assert not done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("call", "name"), [("eager", "rms_norm"), ("other", "linear_gelu")]
)
def test_a_call_on_the_gpu_says_how_to_build_for_it(call, name):
    said = child("cuda")[call]
    assert said.startswith(f"NotImplementedError: opbook::{name}: opbook was built")
    assert toolchain.install("cuda", "13.0") in said
    assert said.endswith(f"USE_CUDA=1 {toolchain.REBUILD}")
    assert "\n" not in said


def test_each_operator_has_the_error():
    assert child("cuda")["without"] == []


def test_what_does_not_need_a_gpu_goes_on():
    found = child("cuda")
    assert found["fake"] == "cuda:0"
    assert found["cpu"] == [1.0, 1.0, 1.0]
    assert found["runs"] is False


def test_others_can_register_a_kernel():
    found = child("cuda")
    assert found["override"] == [5.0, 5.0, 5.0]
    assert "built without GPU kernels" in found["after"]
    assert found["own kernel"] == [6.0, 6.0, 6.0]


def test_a_composite_operator_stays_one():
    found = child("cuda")
    assert found["composite"] == [2.0, 2.0, 2.0]
    assert found["composite refused"] is False


def test_a_torch_for_the_cpu_alone_is_left_as_it_is():
    found = child()
    assert "built without" not in found["eager"]
    assert found["without"]


@pytest.mark.parametrize(("kernels", "sees"), [(False, True), (True, False)])
def test_it_takes_kernels_and_a_gpu_to_run_on_one(monkeypatch, kernels, sees):
    assert not opbook.runs_on_gpu()
    monkeypatch.setattr(gpu, "HAS_KERNELS", kernels)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: sees)
    assert not opbook.runs_on_gpu()


def test_rocm_is_named():
    found = child("hip")
    assert toolchain.install("hip", "7.0.51831") in found["eager"]
    assert found["without"] == []

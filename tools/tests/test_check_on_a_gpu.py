"""opbook check on a GPU: a call that ends CUDA for its process ends no other check."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opbook_tools import check

# Each in a process of its own, which has not used CUDA yet.
PROGRAM = """
import json, sys
import torch
from opbook_tools import check

def asserts(x):
    torch._assert_async((x < 50).all())
    return x.clone()

def kills(x):
    if x.isinf().any():
        import os
        os.kill(os.getpid(), 11)
    return x.clone()

def index(x, i):
    return x.index_select(0, i)

name, place, device = sys.argv[1:]
x, i = torch.arange(6.0), torch.tensor([0, 4, 2])
operator, reference, arguments = {
    "asserts": (asserts, torch.clone, (x,)),
    "kills": (kills, torch.clone, (x,)),
    "index": (index, lambda x, i: x[i], (x.view(6, 1), i)),
}[name]
arguments = [each.to(place) for each in arguments]
options = {"reference": reference, "device": device or None}
found = check.each(operator, tuple(arguments), **options)
print(json.dumps({r.name: (r.verdict, r.failed, r.text) for r in found}))
assert torch.cuda.is_initialized() is (place == "cuda")
torch.ones(1, device="cuda").add(1).item()  # it can still be used
"""


def results(
    operator: str, place: str = "cpu", device: str = "cuda"
) -> dict[str, tuple[str, bool, str]]:
    source = Path(check.__file__).parents[2]
    variables = {"PYTHONPATH": str(source), "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    command = [sys.executable, "-c", PROGRAM, operator, place, device]
    done = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr
    return {n: tuple(v) for n, v in json.loads(done.stdout.splitlines()[-1]).items()}


def test_an_assertion_of_a_kernel_is_a_check_that_was_not_run():
    found = results("asserts")
    assert not [name for name, (verdict, *_) in found.items() if verdict == "WRONG"]
    met = {name: text for name, (_, failed, text) in found.items() if failed}
    assert met.keys() >= {"values"}
    assert all("device-side assert" in text for text in met.values())
    assert {found[name][0] for name in ("random", "threads", "torch.compile")} == {"ok"}


def test_a_crash_ends_the_check_that_met_it():
    found = results("kills")
    assert "SIGSEGV" in found.pop("values")[2]
    assert not [
        n for n, (what, failed, _) in found.items() if failed or what == "WRONG"
    ]


@pytest.mark.parametrize(("place", "device"), [("cuda", ""), ("cpu", "cuda")])
def test_an_index_that_pytorch_refuses_is_refused_on_the_cpu(place, device):
    found = results("index", place, device).values()
    assert not [text for what, failed, text in found if failed or what == "WRONG"]

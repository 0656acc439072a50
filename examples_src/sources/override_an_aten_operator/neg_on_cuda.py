"""torch.neg on a CUDA device: whose kernel runs, is it right, and what does it cost."""

import json
import os
import subprocess
import sys

ON = {"OPBOOK_ENABLE_OVERRIDES": "1"}
SETTINGS = {
    "enabled": ON,
    "not enabled": {},
    "disabled for neg": ON | {"OPBOOK_DISABLE_OVERRIDE_neg": "1"},
}


def python(*arguments: str, **variables: str) -> subprocess.CompletedProcess:
    """Run Python in a fresh process with some environment variables."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR"} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def switches() -> None:
    """Compare with eager, which is asked before the library is loaded."""
    for name, setting in SETTINGS.items():
        done = python("tests/neg_child.py", "cuda", OPBOOK_LOG_CALLS="1", **setting)
        if done.returncode:
            raise SystemExit(done.stderr)
        found = json.loads(done.stdout.splitlines()[-1])
        faults = sum(map(len, found["faults"].values()))
        print(
            f"{name}: {sum(found['cases'].values())} inputs, {faults} differ from eager"
        )
        print("  rows that changed:", *found["changed"] or ["none"])
        for call in ("dense", "half", "strided", "compiled"):
            print(f"  {call:9}", *found["calls"][call] or ["no call logged"])


INDUCTOR = """
import torch, opbook
x = torch.randn(1024, device="cuda")
assert torch.equal(torch.compile(torch.neg)(x), 0 - x)
"""


def inductor() -> None:
    """Count the calls that code of Inductor makes."""
    done = python("-c", INDUCTOR, OPBOOK_LOG_CALLS="1", **ON)
    calls = done.stderr.count("opbook: aten::neg")
    result = f"{calls} calls" if done.returncode == 0 else done.stderr.splitlines()[-1]
    print("compiled by Inductor:", result)


COST = """
import torch, opbook
from torch.utils.benchmark import Timer
for dtype, count in ((torch.float32, 8), (torch.float16, 1 << 28)):
    x = torch.randn(count, device="cuda", dtype=dtype)
    timer = Timer("torch.neg(x)", globals={"torch": torch, "x": x})
    print(f"{timer.blocked_autorange(min_run_time=0.5).median * 1e6:.1f}")
"""


def cost() -> None:
    """Time a tiny and a large tensor, with and without the override."""
    for name, setting in {"eager's kernel": {}, "ours": ON}.items():
        done = python("-c", COST, **setting)
        small, large = done.stdout.split() or ("failed", "failed")
        print(f"{name:15} 8 x fp32 {small:>6} us   2**28 x fp16 {large:>7} us")


if __name__ == "__main__":
    switches()
    inductor()
    cost()

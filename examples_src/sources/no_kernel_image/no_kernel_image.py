"""Build the starter for several architectures, and call each build on the GPU at hand.

Needs nvcc and a GPU. With a library as its argument, the script calls the operator.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from opbook import toolchain

STARTER = Path(__file__).parents[3] / "starter" / "cpp"
# For another GPU, for an older one, for the older one and later ones, for this one.
TARGETS = ("10.0", "8.0", "8.0+PTX", "9.0")


def build(target: str, folder: Path) -> Path:
    """Make a wheel for the architectures of a ``TORCH_CUDA_ARCH_LIST``."""
    ignored = shutil.ignore_patterns("build", "*.egg-info", "*.so")
    project = shutil.copytree(STARTER, folder / "starter", ignore=ignored)
    home = toolchain.cuda_home()
    variables = {"TORCH_CUDA_ARCH_LIST": target, "USE_CUDA": "1"}
    variables |= {"CUDA_HOME": str(home), "LIBRARY_PATH": str(toolchain.cudart(home))}
    pip = "-m pip wheel --quiet --no-index --no-build-isolation --no-deps -w".split()
    done = subprocess.run(
        [sys.executable, *pip, folder, "."],
        cwd=project,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(done.stdout)
    (wheel,) = folder.glob("*.whl")
    return wheel


def inside(library: Path) -> tuple[list[str], list[str]]:
    """The code for GPUs in a library, and the libraries of CUDA that it needs."""
    import nvcc

    options = ["--list-elf", "--list-ptx"]
    command = [nvcc.path("cuobjdump"), *options, library]
    listed = subprocess.run(command, capture_output=True, text=True).stdout
    code = re.findall(r"(sm_\w+)\.(cubin|ptx)", listed)
    command = ["readelf", "--dynamic", library]
    needed = subprocess.run(command, capture_output=True, text=True).stdout
    return (
        sorted({f"{kind} {name}" for name, kind in code}),
        re.findall(r"NEEDED.*\[(libcu\S+)\]", needed),
    )


def call(library: str) -> None:
    """Compare the operator with PyTorch, or print the error."""
    torch.ops.load_library(library)
    gate, up = torch.randn(2, 8, 1024, device="cuda")
    try:
        actual = torch.ops.starter.swiglu(gate, up)
    except RuntimeError as error:
        print(f"RuntimeError: {error}".partition("\n")[0])
        return
    torch.testing.assert_close(actual, torch.nn.functional.silu(gate) * up)
    print("right")


def examine(target: str) -> dict:
    """Build for a target, look inside, call the operator in its own process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(target, folder)
        shutil.unpack_archive(wheel, folder / "wheel", "zip")
        (library,) = folder.glob("wheel/starter/*.so")
        code, needed = inside(library)
        command = [sys.executable, __file__, library]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    result = done.stdout.strip()
    return {"wheel": wheel.name, "code": code, "needed": needed, "result": result}


def main() -> None:
    """Examine all targets at the same time, and print what was found."""
    major, minor = torch.cuda.get_device_capability()
    print(f"this GPU: compute capability {major}.{minor}")
    with ThreadPoolExecutor() as pool:
        data = list(pool.map(examine, TARGETS))
    for target, found in zip(TARGETS, data, strict=True):
        print(f"\nTORCH_CUDA_ARCH_LIST={target}", found["wheel"], *found["needed"])
        print("  contains:", ", ".join(found["code"]))
        print("  the call:", found["result"])
    if path := os.environ.get("RECORD_DATA"):
        Path(path).write_text(json.dumps(data))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        call(sys.argv[1])
    else:
        main()

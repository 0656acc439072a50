"""Build the starter's wheel for CPUs and for CUDA, and install both from one index.

Needs nvcc and a PyTorch for CUDA, and no GPU; on a GPU it calls the operator too.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from opbook import toolchain

ROOT = Path(__file__).parents[3]
CALL = """
import torch, starter
device = "cuda" if torch.cuda.is_available() and "+cu" in {variant!r} else "cpu"
gate, up = torch.randn(2, 8, 1024, device=device)
expected = torch.nn.functional.silu(gate) * up
torch.testing.assert_close(starter.swiglu(gate, up), expected)
print("right on", device)
"""


# [variants]
def variants() -> dict[str, dict[str, str]]:
    """The version of each variant, and the variables that setup.py reads."""
    home = toolchain.cuda_home()
    major = torch.version.cuda.partition(".")[0]
    cuda = {"CUDA_HOME": str(home), "LIBRARY_PATH": str(toolchain.cudart(home))}
    cuda |= {"USE_CUDA": "1", "TORCH_CUDA_ARCH_LIST": "8.0;9.0+PTX"}
    return {"0.1.0+cpu": {"USE_CUDA": "0"}, f"0.1.0+cu{major}": cuda}


def build(version: str, variables: dict[str, str], wheels: Path) -> Path:
    """Make the wheel of one variant: a local version, and its variables."""
    with tempfile.TemporaryDirectory() as folder:
        ignored = shutil.ignore_patterns("build", "*.egg-info", "*.so")
        project = shutil.copytree(ROOT / "starter/cpp", f"{folder}/x", ignore=ignored)
        settings = Path(project, "pyproject.toml")
        text = settings.read_text().replace('"0.1.0"', f'"{version}"')
        settings.write_text(text)
        pip = "pip wheel --quiet --no-index --no-build-isolation --no-deps -w".split()
        run([*pip, wheels, "."], cwd=project, env=os.environ | variables)
    (wheel,) = wheels.glob(f"*{version}*")
    return wheel


# [/variants]


def run(command: list, **options) -> str:
    """Run a module of this Python; end with its output if it fails."""
    command = [sys.executable, *(["-m"] if command[0] == "pip" else []), *command]
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, **pipe, **options)
    if done.returncode:
        sys.exit(done.stdout)
    return done.stdout.strip()


def inside(library: Path) -> str:
    """The libraries of CUDA that a library needs, and the GPUs it has code for."""
    command = ["readelf", "--dynamic", library]
    needed = subprocess.run(command, capture_output=True, text=True).stdout
    libraries = re.findall(r"NEEDED.*\[(libcu\S+)\]", needed)
    lister = toolchain.find("cuobjdump")
    command = [lister, "--list-elf", "--list-ptx", library]
    listed = subprocess.run(command, capture_output=True, text=True).stdout
    code = {f"{kind} {name}" for name, kind in re.findall(r"(sm_\w+)\.(\w+)", listed)}
    return ", ".join([*libraries, *sorted(code)]) or "nothing of CUDA"


def main() -> None:
    """Build, list and install both variants."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = variants()
        wheels = [build(*item, folder / "wheels") for item in found.items()]
        make_index = Path(__file__).with_name("make_index.py")
        run([make_index, folder / "index", *wheels])
        index = ["--index-url", (folder / "index").as_uri()]
        for variant, wheel in zip(found, wheels, strict=True):
            target = folder / variant
            options = ["--quiet", "--no-deps", "--isolated", "--target", target, *index]
            run(["pip", "install", *options, f"starter=={variant}"])
            (library,) = target.glob("starter/*.so")
            print(f"{wheel.name}, {wheel.stat().st_size / 1024:.0f} KiB")
            print("  needs and contains:", inside(library))
            path = {"PYTHONPATH": str(target)}
            call = CALL.format(variant=variant)
            print(f"  starter=={variant}:", run(["-c", call], env=os.environ | path))


if __name__ == "__main__":
    main()

"""Install one wheel into an empty folder, and see what works with the torch at hand."""

import ctypes
import hashlib
import importlib
import inspect
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch.utils import cpp_extension

HEADERS = ("csrc/inductor/aoti_torch/c/shim.h", "csrc/stable/c/shim.h")
INCLUDE = Path(torch.__file__).parent / "include/torch"


def install(wheel: Path, folder: str) -> None:
    """Install without compiling anything and without a package index."""
    pip = "-m pip install --quiet --no-index --no-deps --target".split()
    subprocess.run([sys.executable, *pip, folder, wheel], check=True)


def reference(gate, up):
    """What the operator of the wheel computes, in PyTorch's operators."""
    return torch.nn.functional.silu(gate) * up


# [checks]
def call(starter, gate, up):
    """The numbers are those of PyTorch's operators."""
    torch.testing.assert_close(starter.swiglu(gate, up), reference(gate, up))


def differentiate(starter, gate, up):
    """So are those of the gradients."""
    inputs = [x.clone().requires_grad_() for x in (gate, up)]
    found, wanted = (
        torch.autograd.grad(f(*inputs).sum(), inputs)
        for f in (starter.swiglu, reference)
    )
    torch.testing.assert_close(found, wanted)


def compile_(starter, gate, up):
    """The compiler takes the operator into its graph, and nothing breaks the graph."""
    compiled = torch.compile(starter.swiglu, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(gate, up), reference(gate, up))


def opcheck(starter, gate, up):
    """Schema, fake kernel and registrations agree."""
    torch.library.opcheck(torch.ops.starter.swiglu.default, (gate, up))


# [/checks]


def outcome(check, *arguments) -> str:
    """In a word, or the first line of the error."""
    try:
        check(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return "passed"


def has(function, parameter: str) -> bool:
    """Whether a function of this torch knows the parameter."""
    return parameter in inspect.signature(function).parameters


def facts() -> dict[str, bool]:
    """What this torch has of what came after 2.11, asked of the torch itself."""
    library = torch.library
    build = inspect.getsource(cpp_extension)
    header = (INCLUDE / "csrc/stable/library.h").read_text()
    replaces = inspect.signature(library.register_fake).parameters["allow_override"]
    return {
        "torch.Tag.out": hasattr(torch.Tag, "out"),
        "custom_op(tags=...)": has(library.custom_op, "tags"),
        "register_fake replaces an earlier one": replaces.default is True,
        "builds use ccache by themselves": "TORCH_NO_COMPILER_WRAPPER" in build,
        "builds are C++20 by default": "-std=c++20" in build,
        "m.def(schema, tags) in the stable ABI": "std::vector<at::Tag>& tags" in header,
        "triton_op(schema=...)": has(library.triton_op, "schema"),
        "load() survives a build that was killed": "FileLock" in build,
    }


def functions() -> list[str]:
    """The C functions that this torch's headers declare and its library has."""
    library = ctypes.CDLL(str(INCLUDE.parents[1] / "lib/libtorch_cpu.so"))
    text = "".join((INCLUDE / header).read_text() for header in HEADERS)
    names = set(re.findall(r"\b((?:aoti_)?torch_\w+)\(", text))
    return sorted(name for name in names if hasattr(library, name))


def main(wheel: Path) -> dict:
    """All of it, as data."""
    with tempfile.TemporaryDirectory() as folder:
        install(wheel, folder)
        sys.path.insert(0, folder)
        starter = importlib.import_module("starter")
        arguments = (starter, *torch.randn(2, 33, 17))
        checks = (call, differentiate, compile_, opcheck)
        results = {c.__name__.strip("_"): outcome(c, *arguments) for c in checks}
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "wheel": wheel.name,
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "checks": results,
        "facts": facts(),
        "functions": functions(),
    }


if __name__ == "__main__":
    wheels = [*Path(sys.argv[1]).glob("*.whl")]
    if len(wheels) != 1:
        sys.exit(f"{sys.argv[1]}: expected one wheel, but found {len(wheels)}")
    found = main(wheels[0])
    for key in ("wheel", "sha256", "python", "torch"):
        print(f"{key:14}{found[key]}")
    for name, result in found["checks"].items():
        print(f"{name:14}{result}")
    if path := os.environ.get("RECORD_DATA"):
        Path(path).write_text(json.dumps(found))

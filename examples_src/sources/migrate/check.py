"""Build one stage of the migration and see what PyTorch can do with it."""

import importlib
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from sysconfig import get_path

import torch
from torch import Tensor
from torch.utils.cpp_extension import get_cxx_compiler, include_paths, library_paths

STAGE = sys.argv[1]
SOURCE = Path(__file__).with_name(f"{STAGE}.cpp")
MODULE = "migrated_cpu"
FOLDER = tempfile.TemporaryDirectory()


def build() -> Path:
    """Compile the stage, and say what that costs."""
    library = Path(FOLDER.name, f"{MODULE}.so")
    flags = ["-std=c++20", "-O1", "-g0", "-fPIC", "-shared"]
    flags += [f"-isystem{path}" for path in [*include_paths(), get_path("include")]]
    flags += [f"-DTORCH_EXTENSION_NAME={MODULE}"]
    if STAGE == "stable":
        flags += ["-DTORCH_TARGET_VERSION=0x020b000000000000"]  # 2.11 and later
    link = [*(f"-L{path}" for path in library_paths()), "-ltorch_cpu", "-lc10"]
    if STAGE == "pybind":
        link += ["-ltorch_python"]
    parts = shlex.join([*flags, str(SOURCE), "-o", str(library), *link])
    subprocess.run(["bash", "-c", f"{get_cxx_compiler()} {parts}"], check=True)
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    print(f"{'compiled in':18}{seconds:.0f} CPU seconds")
    return library


def load():
    """The function of the stage."""
    sys.path.insert(0, FOLDER.name)
    if STAGE == "pybind":
        return importlib.import_module(MODULE).scan
    return importlib.import_module("migrated").scan


# [wrap]
def wrapped(scan):
    """Keep the binding, and tell PyTorch what the function computes."""

    @torch.library.custom_op("wrapped::scan", mutates_args=())
    def operator(x: Tensor, decay: Tensor | None = None) -> Tensor:
        return scan(x, decay)

    operator.register_fake(lambda x, decay=None: x.new_empty(x.shape))
    return operator


# [/wrap]


def expected(x, decay):
    """The same in PyTorch's operators."""
    y = [x[:, 0]]
    for t in range(1, x.shape[1]):
        y.append(decay * y[-1] + x[:, t])
    return torch.stack(y, 1)


def gradients(function, *inputs):
    """Of all inputs, by `.sum().backward()`."""
    inputs = [tensor.clone().requires_grad_() for tensor in inputs]
    function(*inputs).sum().backward()
    return [tensor.grad for tensor in inputs]


def compiled(scan, x, decay):
    """Compile a function that calls it; a graph break is an error."""
    return torch.compile(scan, fullgraph=True, backend="aot_eager")(x, decay)


def exported(scan, x, decay):
    """Export a module that calls it, and run the exported program."""

    class Module(torch.nn.Module):
        def forward(self, x, decay):
            return scan(x, decay)

    return torch.export.export(Module(), (x, decay)).module()(x, decay)


def mapped(scan, x, decay):
    """Map over the rows, as if it were written for a single one."""
    return torch.vmap(scan)(x[:, None], decay[:, None])[:, 0]


def show(what: str, right, run, *arguments) -> None:
    """Say whether it gives the right result, or why not."""
    try:
        torch.testing.assert_close(run(*arguments), right)
        answer = "works"
    except Exception as error:
        (first, *_) = filter(None, map(str.strip, str(error).splitlines()))
        answer = f"{type(error).__name__}: {first[:52]}"
    print(f"{what:18}{answer}")


warnings.simplefilter("ignore")
library = build()
scan = load()
x, decay = torch.randn(3, 8), torch.rand(3)
right = expected(x, decay)
show("a call", right, scan, x, decay)
show("gradients", gradients(expected, x, decay), gradients, scan, x, decay)
show("  without decay", gradients(lambda x: x.cumsum(1), x), gradients, scan, x)
show("torch.compile", right, compiled, scan, x, decay)
show("torch.export", right, exported, scan, x, decay)
show("torch.vmap", right, mapped, scan, x, decay)
if STAGE == "pybind":
    show("compile, wrapped", right, compiled, wrapped(scan), x, decay)
symbols = subprocess.run(
    ["nm", "-DC", "--undefined-only", library],
    capture_output=True,
    text=True,
    check=True,
).stdout
unstable = set(re.findall(r"U ((?:at|c10|torch)::.*)", symbols))
print(f"{'bound by':18}{len(unstable)} C++ symbols of this torch")

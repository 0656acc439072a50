"""Plant faults in operators that exist for other reasons, and let opbook.check look."""

import importlib
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import torch

from opbook import check

ROOT = Path(__file__).resolve().parents[3]
FAULTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["fault"]

torch.manual_seed(0)
X, Y = torch.randn(2, 4, 16).unbind()
# The operators, each with arguments that its own tests might use.
HOSTS: dict[str, tuple[str, list[tuple]]] = {
    "starter/triton/src/starter/swiglu.py": ("swiglu", [(X, Y), (X, Y, 1.0)]),
    "src/opbook/triton/softmax.py": ("softmax", [(X,)]),
    "src/opbook/triton/rms_norm.py": ("rms_norm", [(X, Y[0].clone())]),
    "src/opbook/triton/linear.py": ("matmul", [(X, torch.randn(16, 3))]),
    "src/opbook/triton/dropout.py": ("dropout", [(X, 0.5, 7), (X, 0.0, 7)]),
}


def load(text: str, name: str) -> ModuleType:
    """Import a module whose operators are in a namespace of their own."""
    for namespace in ("starter", "opbook_triton"):
        text = text.replace(f'"{namespace}::', f'"{name}::')
        text = text.replace(f"torch.ops.{namespace}.", f"torch.ops.{name}.")
    Path(sys.path[0], f"{name}.py").write_text(text)
    importlib.invalidate_caches()
    return importlib.import_module(name)


def wrong(operator: Callable, samples: list[tuple]) -> list[str]:
    """The checks that find something, for any of the samples."""
    found = [each for sample in samples for each in check.results(operator, sample)]
    return list(dict.fromkeys(name for name, verdict, _ in found if verdict == "WRONG"))


def findings() -> Iterator[tuple[str, str, list[str]]]:
    """Operator, fault and the checks that find it; first every operator as it is."""
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)  # Triton reads a kernel's source from its file
        as_it_is = [{"file": host, "what": "", "old": "", "new": ""} for host in HOSTS]
        for number, fault in enumerate(as_it_is + FAULTS):
            text = (ROOT / fault["file"]).read_text()
            if fault["old"] not in text:
                raise ValueError(f"{fault['file']} has changed: {fault['what']}")
            if fault["old"]:
                text = text.replace(fault["old"], fault["new"])
            operator, samples = HOSTS[fault["file"]]
            module = load(text, f"planted_{number}")
            found = wrong(getattr(module, operator), samples)
            yield operator, fault["what"], found
        sys.path.remove(folder)


if __name__ == "__main__":
    for operator, what, found in findings():
        print(f"{operator:9} {what or '(no fault)':49} {', '.join(found) or '-'}")

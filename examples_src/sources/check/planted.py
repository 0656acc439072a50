"""Plant faults in operators that exist for other reasons, and let opbook check look."""

import importlib.util
import sys
import tempfile
import tomllib
from pathlib import Path
from types import ModuleType

import torch

from opbook_tools import check
from opbook_tools.check.errors import BadSample

ROOT = Path(__file__).resolve().parents[3]
FAULTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["fault"]

STARTER = "starter/triton_elementwise/src"
sys.path.append(str(ROOT / STARTER))  # what the starter's operator imports
torch.manual_seed(0)
X, Y = torch.randn(2, 2, 8).unbind()
# The operators, each with arguments that its own tests might use.
HOSTS: dict[str, tuple[str, list[tuple]]] = {
    f"{STARTER}/starter/swiglu.py": ("swiglu", [(X, Y), (X, Y, 1.0)]),
    "src/opbook/triton/softmax.py": ("softmax", [(X,)]),
    "src/opbook/triton/rms_norm.py": ("rms_norm", [(X, Y[0].clone())]),
    "src/opbook/triton/linear.py": ("matmul", [(X, torch.randn(8, 3))]),
    "src/opbook/triton/dropout.py": ("dropout", [(X, 0.5, 7), (X, 0.0, 7)]),
}

# No fault: a space for a space.
AS_THEY_ARE = [{"file": host, "what": "", "old": " ", "new": " "} for host in HOSTS]


def load(text: str, name: str, folder: str) -> ModuleType:
    """Import a module whose operators have names of their own."""
    for namespace in ("starter", "opbook_triton"):
        text = text.replace(f'"{namespace}::', f'"{namespace}::{name}_')
        text = text.replace(f"ops.{namespace}.", f"ops.{namespace}.{name}_")
    path = Path(folder, f"{name}.py")
    path.write_text(text)  # from which Triton reads the kernels
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def found_by(number: int, fault: dict[str, str], folder: str) -> str:
    """The first check that finds something, for any of the samples; "" if none does."""
    text = (ROOT / fault["file"]).read_text()
    if fault["old"] not in text:
        raise ValueError(f"{fault['file']} has changed: {fault['what']}")
    module = load(text.replace(fault["old"], fault["new"]), f"planted_{number}", folder)
    operator, samples = HOSTS[fault["file"]]
    for sample in samples:
        try:
            # Strict: these operators refuse forward mode, and have every gradient.
            found = check.results(getattr(module, operator), sample, strict=True)
            for check_name, verdict, _ in found:
                if verdict == "WRONG":
                    return check_name
        except BadSample:
            return "PyTorch itself: the call raises"
    return ""


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for number, fault in enumerate(AS_THEY_ARE + FAULTS):
            name, what = HOSTS[fault["file"]][0], fault["what"] or "(no fault)"
            print(f"{name:9} {what:49} {found_by(number, fault, folder) or '-'}")

"""What test_backend.py runs in a process of its own: the gallery's backend, and checks.

The device type ``PrivateUse1`` can be named once per process, and the backend that has
it stays. The last line printed is JSON: the faults that each check found.
"""

import copy
import io
import json
import runpy
import subprocess
import sys
from pathlib import Path

import torch

SCRIPT = Path(__file__).resolve().parents[1] / "examples_src" / "80_bring_a_backend.py"


def same(result: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether a result is on the device and equals the CPU's in every respect."""
    on_device = result.device.type == "opbook"
    layout = result.stride() == expected.stride() and result.shape == expected.shape
    values = torch.equal(result.cpu(), expected) and result.dtype == expected.dtype
    return on_device and layout and values


# Each falls back to the CPU in a way of its own: lists, outputs that are given,
# numbers, several results, a result whose size is known only afterwards.
FALLBACKS = {
    "add": lambda x: x + x,
    "add a number": lambda x: x + 2,
    "add a CPU number": lambda x: x + torch.tensor(2.0),
    "in place": lambda x: x.clone().mul_(3).add_(x),
    "transposed in place": lambda x: x.clone().t().add_(1),
    "out": lambda x: torch.add(x, x, out=torch.empty(0, device=x.device)),
    "out, strided": lambda x: torch.exp(x, out=torch.empty_like(x.t()).t()),
    "sum": lambda x: x.sum(0),
    "matmul": lambda x: x @ x.t(),
    "cat": lambda x: torch.cat([x, x[:1]]),
    "topk": lambda x: torch.topk(x, 2).values,
    "sort": lambda x: x.sort(descending=True).indices,
    "index": lambda x: x[torch.tensor([1, 0], device=x.device)],
    "index by CPU": lambda x: x[torch.tensor([1, 0])],
    "index_put": lambda x: x.clone().index_put_((torch.tensor([1]),), x[0]),
    "where": lambda x: torch.where(x > 2, x, -1.0),
    "masked_fill": lambda x: x.masked_fill(x > 2, 0),
    "nonzero": lambda x: x.nonzero(),
    "unique": lambda x: x.unique(),
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (3,)),
    "half": lambda x: x.half() * 2,
    "foreach": lambda x: torch._foreach_add([x, x], 1)[1],
    "empty": lambda x: x[:0] + 1,
    "arange": lambda x: torch.arange(3, device=x.device),
    "tensor": lambda x: torch.tensor([1, 2], device=x.device),
}
VIEWS = {
    "t": lambda x: x.t(),
    "slice": lambda x: x[:, 1:],
    "select": lambda x: x[1],
    "view": lambda x: x.view(-1),
    "reshape": lambda x: x.reshape(3, 2),
    "expand": lambda x: x[:, :1].expand(-1, 1),
    "unfold": lambda x: x.unfold(1, 3, 1),
    "diagonal": lambda x: x.diagonal(),
    "split": lambda x: x.split(1)[1],
    "view dtype": lambda x: x.view(torch.int32),
    "detach": lambda x: x.detach(),
    "chunk": lambda x: x.chunk(3, 1)[2],
}


def fallback(x: torch.Tensor, device: str) -> list[str]:
    on_device = x.to(device)
    return [n for n, f in FALLBACKS.items() if not same(f(on_device), f(x))]


def views(x: torch.Tensor, device: str) -> list[str]:
    """A write to a view is seen in its base, and both say what a CPU's would."""
    faults = []
    for name, view in VIEWS.items():
        base, expected = x.to(device), x.clone()
        if not same(view(base), view(expected)):
            faults.append(f"{name}: values")
        view(base).fill_(7)
        view(expected).fill_(7)
        if not same(base, expected):
            faults.append(f"{name}: write")
    z, expected = torch.tensor([1 + 2j]).to(device), torch.tensor([1 + 2j])
    for name in ("real", "imag"):
        getattr(z, name).fill_(5)
        getattr(expected, name).fill_(5)
    return faults if same(z, expected) else [*faults, "real and imag"]


def device_kept(x: torch.Tensor, device: str) -> list[str]:
    """Results stay on the second device, and the current one is the first again."""
    second = x.to("opbook:1")
    results = {
        "neg": -second,
        "fallback": second + 1,
        "view": second.t(),
        "like": torch.empty_like(second),
        "copy": second.to("opbook:1", copy=True),
    }
    faults = [n for n, r in results.items() if r.device != torch.device("opbook:1")]
    if torch.accelerator.current_device_index() != 0:
        faults.append("current device")
    first = second.to("opbook:0")
    return faults if same(first, x) and first.device.index == 0 else [*faults, "to 0"]


def refused(x: torch.Tensor, device: str) -> list[str]:
    on_device, other = x.to(device), x.to("opbook:1")
    calls = {
        "add": (RuntimeError, lambda: on_device + x),
        "add, devices": (RuntimeError, lambda: on_device + other),
        "mm": (RuntimeError, lambda: torch.mm(on_device, x.t())),
        "mm, devices": (RuntimeError, lambda: torch.mm(on_device, other.t())),
        "cat": (RuntimeError, lambda: torch.cat([on_device, x])),
        "stack": (RuntimeError, lambda: torch.stack([on_device, other])),
        "linear": (RuntimeError, lambda: torch.nn.Linear(3, 2)(on_device)),
        "bool": (RuntimeError, lambda: -(on_device > 1)),
        "numpy": (TypeError, lambda: on_device.numpy()),
        "device": (RuntimeError, lambda: x.to("opbook:2")),
        "view": (RuntimeError, lambda: on_device.t().view(-1)),
        "memory": (
            torch.OutOfMemoryError,
            lambda: torch.empty(1 << 50, device=device),
        ),
    }
    return [name for name, (kind, call) in calls.items() if not raises(kind, call)]


def raises(kind: type[Exception], call) -> bool:
    try:
        call()
    except kind:
        return True
    return False


def saved(x: torch.Tensor, device: str) -> list[str]:
    """Strides and shared memory survive torch.save; a deep copy shares nothing."""
    base = x.to(device)
    file = io.BytesIO()
    torch.save({"base": base, "t": base.t()}, file)
    file.seek(0)
    loaded = torch.load(file)
    faults = [] if same(loaded["t"], x.t()) else ["strides"]
    loaded["t"].fill_(4)
    if not same(loaded["base"], torch.full_like(x, 4)):
        faults.append("shared memory")
    copied = copy.deepcopy(base)
    copied.fill_(5)
    return faults if same(base, x) else [*faults, "deepcopy"]


INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(0, 2),
    "sliced": lambda t: t[:, ::2],
    "expanded": lambda t: t[:1].expand(4, -1, -1),
    "conjugated": lambda t: t.conj(),
    "negative bit": lambda t: torch._neg_view(t),
    "0-dim": lambda t: t[1, 2, 3],
    "empty": lambda t: t[:0],
}


def layouts(x: torch.Tensor, device: str) -> list[str]:
    """The kernel of ``neg`` takes every dtype and layout."""
    faults = []
    for dtype in INTEGERS + FLOATS + COMPLEX:
        base = torch.arange(60).reshape(3, 4, 5).to(dtype)
        base = base + 1j if dtype.is_complex else base
        for name, layout in LAYOUTS.items():
            if not same(torch.neg(layout(base.to(device))), torch.neg(layout(base))):
                faults.append(f"{name} of {dtype}")
    return faults


def trained(x: torch.Tensor, device: str) -> list[str]:
    """A module, an optimizer and a compiled function work on the device."""
    faults, inputs = [], x.to(device)
    model = torch.nn.Linear(3, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = (model(inputs) - inputs[:, :1]).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if not losses[-1] < losses[0]:
        faults.append("loss")
    compiled = torch.compile(lambda t: torch.neg(t) + 1, backend="aot_eager")
    return faults if same(compiled(inputs), 1 - x) else [*faults, "compiled"]


def gradients(x: torch.Tensor, device: str) -> list[str]:
    leaf = x.double().to(device).requires_grad_()
    functions = {"neg": torch.neg, "neg twice": lambda t: -(-t * t)}
    return [
        name
        for name, function in functions.items()
        if not torch.autograd.gradcheck(function, leaf)
        or not torch.autograd.gradgradcheck(function, leaf)
    ]


def logged(x: torch.Tensor, device: str) -> list[str]:
    on_device = x.to(device)
    calls = torch.ops.opbook_backend.calls
    calls()
    torch.neg(on_device)
    on_device.clone().neg_()
    expected = ["aten::neg in a kernel of this backend", "aten::neg.out on the CPU"]
    noted = calls()
    half = torch.view_as_complex(x.half().reshape(3, 2))
    if not same(torch.view_as_real(-half.to(device)), torch.view_as_real(-half)):
        noted.append("complex32")
    return [] if noted == expected else noted


def main() -> None:
    sys.argv = [str(SCRIPT)]
    script = runpy.run_path(str(SCRIPT))  # ends the process where it is skipped
    x = torch.arange(6.0).reshape(2, 3)
    checks = (fallback, views, device_kept, refused, saved, layouts, trained)
    checks += (gradients, logged)
    faults = {check.__name__: check(x, "opbook") for check in checks}
    names = subprocess.run(
        ["nm", "--undefined-only", script["objects"][1]],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    # The C++ names of PyTorch: at::, c10:: and torch::, where stable code has none.
    marks = ("_ZN2at", "_ZNK2at", "_ZN3c10", "_ZNK3c10", "_ZN5torch", "_ZNK5torch")
    faults["symbols"] = [name for name in names if name.startswith(marks)]
    print(json.dumps(faults))


main()

"""What test_backend.py runs in a process of its own: the gallery's backend, and checks.

The device type ``PrivateUse1`` can be named once per process, and the backend that has
it stays. The last line printed is JSON: the faults that each check found.
"""

import copy
import importlib.util
import io
import json
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.utils.checkpoint

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


def slow() -> None:
    """Keep the current stream busy, so that what is queued after it runs later."""
    torch.ops.opbook_backend.sleep(300)


def streams(x: torch.Tensor, device: str) -> list[str]:
    """Work runs in the order of its stream, and waits for what it is told to."""
    faults, base = [], x.to(device)
    default, stream = torch.accelerator.current_stream(), torch.Stream(device)
    with stream:
        slow()
        negated = torch.neg(base)
        event = torch.Event(device, enable_timing=True)
        event.record()
        if torch.accelerator.current_stream() != stream:
            faults.append("current stream")
    if torch.accelerator.current_stream() != default:
        faults.append("stream before")
    if stream.query() or event.query():
        faults.append("query says done")
    if torch.equal(negated.cpu(), -x):
        faults.append("the default stream waits without being told")
    event.wait()
    copied = negated.cpu()
    if not torch.equal(copied, -x):
        faults.append("event.wait")
    if not event.query():
        faults.append("query says busy")
    later = torch.Event(device, enable_timing=True)
    with stream:
        slow()
        later.record()
        doubled = negated * 2  # by the CPU, which waits for its stream
    later.synchronize()
    if not 250 < event.elapsed_time(later) < 5000:
        faults.append("elapsed_time")
    if not same(doubled, x * -2):
        faults.append("fallback")
    with stream:
        slow()
        third = negated.clone()
    default.wait_stream(stream)
    if not same(third, -x):
        faults.append("wait_stream")
    with stream:
        slow()
        fourth = torch.neg(negated)
    torch.accelerator.synchronize()
    if not stream.query() or not same(fourth, x):
        faults.append("synchronize")
    fourth.record_stream(stream)
    return faults


def on_another_device(x: torch.Tensor, device: str) -> list[str]:
    """A copy between devices waits for the streams of both."""
    second = x.to("opbook:1")
    with torch.accelerator.device_index(1):
        slow()
    negated = torch.neg(second)
    faults = [] if same(negated.to("opbook:0"), -x) else ["from 1 to 0"]
    with torch.accelerator.device_index(1):
        slow()
        target = torch.zeros_like(second)  # filled on the host, when its turn comes
    target.copy_(x.to("opbook:0"), non_blocking=True)
    if not same(target, x):
        faults.append("from 0 to 1")
    return faults


def pinned(x: torch.Tensor, device: str) -> list[str]:
    """Copies wait for the device, except to and from pinned memory."""
    memory = x.pin_memory()
    faults = []
    if not memory.is_pinned() or not memory[1:].is_pinned() or x.is_pinned():
        faults.append("is_pinned")
    # Where there is a GPU too, this argument always means the GPU's pinned memory.
    is_alone = not torch.cuda.is_available()
    if is_alone and not torch.empty(2, pin_memory=True).is_pinned():
        faults.append("pin_memory=True")
    base = x.to(device)
    for name, host, later in (
        ("pageable", torch.zeros_like(x), False),
        ("pinned", torch.zeros_like(x).pin_memory(), True),
    ):
        slow()
        host.copy_(base, non_blocking=True)
        if torch.equal(host, x) == later:
            faults.append(f"{name}, to the host")
        torch.accelerator.synchronize()
        if not torch.equal(host, x):
            faults.append(f"{name}, after synchronize")
    slow()
    on_device = memory.to(device, non_blocking=True)
    del memory  # the queue keeps it
    memory = torch.zeros_like(x).pin_memory()
    if not same(on_device, x):
        faults.append("to the device")
    slow()
    memory.copy_(base)
    if not torch.equal(memory, x):
        faults.append("blocking")
    half = torch.zeros(3, 2, dtype=torch.half).pin_memory()
    half.copy_(base.t(), non_blocking=True)
    torch.accelerator.synchronize()
    if not torch.equal(half, x.half().t()):
        faults.append("dtype and strides")
    if not raises(RuntimeError, lambda: base.copy_(half, non_blocking=True)):
        faults.append("shapes")
    return faults


def freed(x: torch.Tensor, device: str) -> list[str]:
    """What is queued keeps its memory, and memory that moves waits for it."""
    base, stream = x.to(device), torch.Stream(device)
    with stream:
        slow()
        copied = base.clone()
    base.resize_(1 << 20)  # moves the memory that the copy reads
    stream.synchronize()
    faults = [] if same(copied, x) else ["resize"]
    second = x.to("opbook:1").resize_(100)
    if second.untyped_storage().device.index != 1:
        faults.append("resize on the second device")
    slow()
    results = [torch.neg(torch.neg(x.to(device))) for _ in range(100)]
    if not all(same(result, x) for result in results):
        faults.append("temporary")
    return faults


def forked(x: torch.Tensor, device: str) -> list[str]:
    if (child := os.fork()) == 0:
        refused = raises(RuntimeError, lambda: x.to(device))
        os._exit(0 if refused and torch.opbook._is_in_bad_fork() else 1)
    return [] if os.waitpid(child, 0)[1] == 0 else ["the fork was not told"]


def seeded(x: torch.Tensor, device: str) -> list[str]:
    """Generators replay, do not disturb each other, and are asked."""
    faults = []

    def draw(generator=None, where=device):
        return torch.rand(4, device=where, generator=generator).cpu()

    generator = torch.Generator(device)
    if generator.device != torch.device("opbook:0"):
        faults.append("device")
    generator.manual_seed(3)
    state, first = generator.get_state(), draw(generator)
    second = draw(generator)
    if torch.equal(first, second) or not torch.equal(
        first, torch.rand(4, generator=torch.Generator().manual_seed(3))
    ):
        faults.append("numbers")
    generator.set_state(state)
    clone = generator.clone_state()
    if not torch.equal(draw(generator), first) or not torch.equal(draw(clone), first):
        faults.append("state")
    if generator.initial_seed() != 3:
        faults.append("seed")
    torch.manual_seed(5)
    numbers = [draw(), draw(where="opbook:1"), torch.rand(4)]
    torch.manual_seed(5)
    torch.rand(100)  # of the CPU: draws nothing from the device
    if not torch.equal(draw(), numbers[0]):
        faults.append("manual_seed")
    if not torch.equal(draw(where="opbook:1"), numbers[1]):
        faults.append("second device")
    with torch.random.fork_rng(device_type=device):
        inside = draw()
    if not torch.equal(draw(), inside):
        faults.append("fork_rng")
    weight = x.to(device).requires_grad_()
    factors = []

    def dropped(value):
        factors.append(torch.nn.functional.dropout(torch.ones(64, device=device)))
        return value.sum() * factors[-1]

    torch.utils.checkpoint.checkpoint(
        dropped, weight, use_reentrant=False
    ).sum().backward()
    if len(factors) != 2 or not same(factors[1], factors[0].cpu()):
        faults.append("checkpoint")
    ones = torch.ones(1000, device=device)
    kept = torch.nn.functional.dropout(ones, 0.25)
    if torch.equal(kept.cpu(), torch.nn.functional.dropout(ones, 0.25).cpu()):
        faults.append("dropout twice")
    if not 600 < (kept == 1 / 0.75).sum() < 900 or kept.unique().numel() != 2:
        faults.append("dropout")
    if not same(torch.nn.functional.dropout(ones, 1.0), torch.zeros(1000)):
        faults.append("dropout of all")
    other = torch.Generator().manual_seed(0)
    if not raises(RuntimeError, lambda: draw(other)):
        faults.append("generator of the CPU")
    return faults


def autocast(x: torch.Tensor, device: str) -> list[str]:
    base = x.to(device)
    rules = {
        "mm": (lambda t: t @ t.t(), torch.bfloat16),
        "linear": (lambda t: torch.nn.functional.linear(t, t), torch.bfloat16),
        "exp": (lambda t: t.half().exp(), torch.float32),
        "softmax": (lambda t: t.half().softmax(-1), torch.float32),
        "add": (lambda t: t + t, torch.float32),
        "neg": (lambda t: -t.half(), torch.float16),
    }
    with torch.autocast(device, torch.bfloat16):
        dtypes = {name: call(base).dtype for name, (call, _) in rules.items()}
        dtypes["double"] = (base.double() @ base.double().t()).dtype
    expected = {name: dtype for name, (_, dtype) in rules.items()}
    expected["double"] = torch.float64
    faults = [name for name in expected if dtypes[name] != expected[name]]
    weight = x.to(device).requires_grad_()
    with torch.autocast(device, torch.bfloat16):
        torch.nn.functional.mse_loss(base @ weight.t(), base @ base.t()).backward()
    return faults if weight.grad.dtype == torch.float32 else [*faults, "gradient"]


def compiled(x: torch.Tensor, device: str) -> list[str]:
    """Inductor compiles for the device, on the second one too, in stream order."""
    functions = {
        "pointwise": lambda t: torch.neg(t) * 2 + t.sin(),
        "sum": lambda t: (t * 2).sum(0),
        "matmul": lambda t: (t @ t.t()).relu(),
        "view": lambda t: t.t() + 1,
        "half": lambda t: (t.half() + 1.5).exp(),
        "new": lambda t: t + torch.arange(3, device=t.device),
    }
    faults = []
    for index in (0, 1):
        base = x.to(f"opbook:{index}")
        for name, function in functions.items():
            result = torch.compile(function)(base)
            if result.device != base.device or not close(result, function(x)):
                faults.append(f"{name} on {index}")
    base = x.to(device)
    twice = torch.compile(lambda t: t * 2)
    twice(base)
    stream = torch.Stream(device)
    with stream:
        slow()
        result = twice(torch.neg(base))
        stream.synchronize()
    if not same(result, x * -2):
        faults.append("stream")
    leaf, expected = x.to(device).requires_grad_(), x.clone().requires_grad_()
    function = lambda t: (t.sin() * t).exp().sum()  # noqa: E731
    torch.compile(function)(leaf).backward()
    function(expected).backward()
    if not close(leaf.grad, expected.grad):
        faults.append("gradient")
    drawn = []
    for _ in range(2):
        torch.manual_seed(1)
        drawn.append(torch.compile(lambda t: torch.rand_like(t) + t)(base).cpu())
    return faults if torch.equal(*drawn) else [*faults, "seed"]


def close(result: torch.Tensor, expected: torch.Tensor) -> bool:
    on_device = result.device.type == "opbook" and result.dtype == expected.dtype
    return on_device and torch.allclose(result.cpu(), expected, rtol=1e-3, atol=1e-4)


def grouped(library: Path) -> list[str]:
    """Two processes of a group share sums and gradients."""
    with tempfile.TemporaryDirectory() as folder:
        script = SCRIPT.parent / "sources" / "bring_a_backend" / "opbook_group.py"
        command = [sys.executable, script, library, f"{folder}/store"]
        ranks = [
            subprocess.Popen([*command, str(rank), "2"], stdout=subprocess.PIPE)
            for rank in range(2)
        ]
        outputs = [rank.communicate(timeout=100)[0].decode() for rank in ranks]
    expected = "sum 3.0, gradient 1.0\n"
    return [output for output in outputs if output != expected]


def device_generic() -> list[str] | None:
    """PyTorch's samples pass; they need expecttest."""
    if importlib.util.find_spec("expecttest") is None:
        return None
    from opbook_samples import run_tests

    outcome = run_tests()
    faults = [test.id() for test, _ in outcome.failures + outcome.errors]
    return faults if outcome.testsRun > 15 else [*faults, "too few tests"]


def main() -> None:
    sys.argv = [str(SCRIPT)]
    script = runpy.run_path(str(SCRIPT))  # ends the process where it is skipped
    import opbook_compile  # the script has its folder in sys.path

    opbook_compile.register()
    # The key of these caches does not contain the code of opbook_compile.
    torch._inductor.config.fx_graph_cache = False
    torch._functorch.config.enable_autograd_cache = False
    x = torch.arange(6.0).reshape(2, 3)
    checks = (fallback, views, device_kept, refused, saved, layouts, trained)
    checks += (gradients, logged, streams, on_another_device, pinned, freed, forked)
    checks += (seeded, autocast, compiled)
    faults = {check.__name__: check(x, "opbook") for check in checks}
    faults["device_generic"] = device_generic()
    faults["grouped"] = grouped(script["LIBRARY"])
    kernels = script["LIBRARY"].with_name("bring_a_backend_neg.o")
    names = subprocess.run(
        ["nm", "--undefined-only", kernels], capture_output=True, text=True, check=True
    ).stdout.split()
    # The C++ names of PyTorch: at::, c10:: and torch::, where stable code has none.
    marks = ("_ZN2at", "_ZNK2at", "_ZN3c10", "_ZNK3c10", "_ZN5torch", "_ZNK5torch")
    faults["symbols"] = [name for name in names if name.startswith(marks)]
    print(json.dumps(faults))


main()

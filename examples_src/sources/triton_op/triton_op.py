"""One kernel registered with custom_op and with triton_op, and what each check says.

On a GPU it also prints what Inductor makes of both. With the argument "graph" it prints
what a compiler gets to see, which needs no GPU, but TRITON_INTERPRET=0.
"""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op, opcheck, triton_op, wrap_triton

GPU = torch.cuda.is_available() and not triton.knobs.runtime.interpret
DEVICE = "cuda" if GPU else "cpu"


@triton.jit
def scale_kernel(input, output, factor, count, BLOCK: tl.constexpr):
    """Scale one block of elements."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(input + place, mask=place < count)
    tl.store(output + place, x * factor, mask=place < count)


# [operators]
@custom_op("two_ways::opaque", mutates_args=())
def opaque(input: Tensor, factor: float) -> Tensor:
    """Multiply by a number; the body is hidden from the compiler."""
    input = input.contiguous()
    output, count = torch.empty_like(input), input.numel()
    scale_kernel[(triton.cdiv(count, 1024),)](input, output, factor, count, BLOCK=1024)
    return output


@triton_op("two_ways::visible", mutates_args=())
def visible(input: Tensor, factor: float) -> Tensor:
    """Multiply by a number; the compiler traces the body."""
    input = input.contiguous()
    output, count = torch.empty_like(input), input.numel()
    kernel = wrap_triton(scale_kernel)
    kernel[(triton.cdiv(count, 1024),)](input, output, factor, count, BLOCK=1024)
    return output


# [/operators]


def _save(ctx, inputs, output) -> None:
    ctx.factor = inputs[1]


def _gradient_of(op: Callable) -> None:
    op.register_autograd(
        lambda ctx, grad: (op(grad, ctx.factor), None), setup_context=_save
    )


def register_all() -> None:
    """Give both a gradient, and the opaque one the fake kernel that it needs."""

    @opaque.register_fake
    def _(input: Tensor, factor: float) -> Tensor:
        return torch.empty_like(input, memory_format=torch.contiguous_format)

    for op in (opaque, visible):
        _gradient_of(op)


def compiled(backend: str) -> Callable:
    """A check that compiles without a graph break and compares with eager."""

    def check(op: Callable, x: Tensor) -> None:
        torch._dynamo.reset()
        whole = torch.compile(lambda x: op(x, 2.0) + 1, backend=backend, fullgraph=True)
        torch.testing.assert_close(whole(x), 2 * x + 1)

    return check


def gradient(op: Callable, x: Tensor) -> None:
    """Compare the gradient with the factor."""
    x = x.clone().requires_grad_()
    op(x, 2.0).sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 2.0))


class Layer(torch.nn.Module):
    """A model for torch.export, which takes no function."""

    def __init__(self, op: Callable) -> None:
        super().__init__()
        self.op = op

    def forward(self, x: Tensor) -> Tensor:
        """Call the operator."""
        return self.op(x, 2.0) + 1


def only(test: str) -> Callable:
    """One of the four parts of opcheck."""
    return lambda op, x: opcheck(op, (x, 2.0), test_utils=test)


CHECKS: dict[str, Callable] = {
    "eager": lambda op, x: torch.testing.assert_close(op(x, 2.0), 2 * x),
    "autograd": gradient,
    "opcheck: schema": only("test_schema"),
    "opcheck: autograd": only("test_autograd_registration"),
    "opcheck: fake tensor": only("test_faketensor"),
    "opcheck: AOT, dynamic": only("test_aot_dispatch_dynamic"),
    "compile, eager": compiled("eager"),
    "compile, aot_eager": compiled("aot_eager"),
    "export": lambda op, x: torch.export.export(Layer(op), (x,)),
    "vmap": lambda op, x: torch.vmap(lambda row: op(row, 2.0))(x),
}
if GPU:
    CHECKS["compile, inductor"] = compiled("inductor")


def table(**ops: Callable) -> None:
    """Print one row for each check and one column for each operator."""
    x = torch.randn(6, 4, device=DEVICE)
    print(" " * 22 + "".join(f"{name:>11}" for name in ops))
    for name, check in CHECKS.items():
        passed = [passes(check, op, x) for op in ops.values()]
        print(f"{name:22}" + "".join(f"{'✓' if ok else '✗':>11}" for ok in passed))


def passes(check: Callable, op: Callable, x: Tensor) -> bool:
    """Whether a check raises nothing; what it writes to stderr is dropped."""
    with quiet():
        try:
            check(op, x)
        except Exception:
            return False
    return True


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drop stderr, that of C++ as well."""
    saved = os.dup(2)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def between_two(op: Callable) -> Callable:
    """The operator on a transposed input, between two elementwise operators."""
    return lambda x: op(x.t() + 1, 2.0).relu()


def graphs() -> None:
    """Print the operators that each way leaves to the compiler."""
    from torch._dynamo.backends.common import aot_autograd
    from triton.backends.compiler import GPUTarget

    class NoGpu:
        """All that Triton asks of a driver to read a kernel."""

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", 90, 32)

    def show(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable:
        for node in graph.graph.nodes:
            if node.op == "call_function" and "getitem" not in str(node.target):
                print("   ", node.target)
        return lambda *inputs: [torch.empty(4, 6)]

    if not torch.cuda.is_available():
        triton.runtime.driver.set_active(NoGpu())
    for op in (opaque, visible):
        print(f"{op._name}:")
        backend = aot_autograd(fw_compiler=show)
        with quiet():
            torch.compile(between_two(op), backend=backend, fullgraph=True)(
                torch.randn(6, 4)
            )


def inductor() -> None:
    """Print what Inductor calls, and what then runs on the GPU."""
    from torch._inductor.utils import run_and_get_code
    from torch.profiler import ProfilerActivity, profile

    x = torch.randn(512, 1024, device=DEVICE)
    calls = re.compile(r"\.run\(|torch\.ops\.two_ways|empty_strided_cuda\(")
    for op in (opaque, visible):
        torch._dynamo.reset()
        whole = torch.compile(between_two(op), fullgraph=True)
        y, code = run_and_get_code(whole, x)
        torch.testing.assert_close(y, (2 * (x.t() + 1)).relu())
        lines = "\n".join(code).splitlines()
        inlined = any("def scale_kernel" in line for line in lines)
        print(f"\n{op._name}: our kernel is {'' if inlined else 'not '}in the code")
        for line in lines:
            if calls.search(line) and "def " not in line:
                print("   ", line.split("#")[0].strip()[:80])
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
            whole(x)
            torch.cuda.synchronize()
        events = [e for e in profiler.events() if e.device_type.name == "CUDA"]
        names = [re.sub(r"^void |[<(].*", "", e.name).split("::")[-1] for e in events]
        print(f"    runs {len(names)} kernels:", ", ".join(names))


def main() -> None:
    """Print the graphs or the table, and on a GPU the code."""
    register_all()
    if "graph" in sys.argv:
        graphs()
        return
    table(custom_op=opaque, triton_op=visible)
    if GPU:
        inductor()


if __name__ == "__main__":
    main()

"""A Triton kernel in a compiled function, without any registration. It needs a GPU."""

import re
from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor


# [plain]
@triton.jit
def scale_kernel(input, output, factor, count, BLOCK: tl.constexpr):
    """Multiply one block of elements by a number."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(input + place, mask=place < count)
    tl.store(output + place, x * factor, mask=place < count)


def scale(input: Tensor, factor: float) -> Tensor:
    """Allocate the output and launch: no decorator, no schema, no fake kernel."""
    input = input.contiguous()
    output, count = torch.empty_like(input), input.numel()
    scale_kernel[(triton.cdiv(count, 1024),)](input, output, factor, count, BLOCK=1024)
    return output


@torch.compile(fullgraph=True)
def layer(x: Tensor) -> Tensor:
    """The kernel between two of PyTorch's operators."""
    return scale(x + 1, 2.0).relu()


# [/plain]


class Layer(torch.nn.Module):
    """A model for torch.export, which takes no function."""

    def forward(self, x: Tensor) -> Tensor:
        """Call the function with the kernel."""
        return scale(x, 2.0)


def gradient(function: Callable, x: Tensor) -> list[float]:
    """The gradient by x of a function that doubles it, and adds it once more."""
    leaf = x.clone().requires_grad_()
    (function(leaf, 2.0) + leaf).sum().backward()
    return leaf.grad.unique().tolist()


def exported(x: Tensor, strict: bool) -> str:
    """Export a model with the kernel, and run what was exported."""
    program = torch.export.export(Layer(), (x,), strict=strict)
    torch.testing.assert_close(program.module()(x), 2 * x)
    return "exported, and right"


# [limits]
LIMITS = {
    "gradient, eager: should be 3": lambda x: gradient(scale, x),
    "gradient, compiled: should be 3": lambda x: gradient(torch.compile(scale), x),
    "torch.export": lambda x: exported(x, strict=False),
    "torch.export, strict": lambda x: exported(x, strict=True),
    "torch.vmap": lambda x: torch.vmap(lambda row: scale(row, 2.0))(x).shape,
    "CPU tensor": lambda x: scale(x.cpu(), 2.0).shape,
}
# [/limits]


def main() -> None:
    """Print what Inductor calls, and what a function without a registration lacks."""
    from torch._inductor.utils import run_and_get_code

    x = torch.randn(64, 1024, device="cuda")
    y, code = run_and_get_code(layer, x)
    torch.testing.assert_close(y, (2 * (x + 1)).relu())
    torch.testing.assert_close(scale(x[:, ::2], 2.0), 2 * x[:, ::2])
    print("compiled without a graph break, equal to eager; the code calls:")
    for line in "\n".join(code).splitlines():
        if re.match(r"\s+\w+\.run\(", line):
            print("   ", line.strip()[:76])
    for name, attempt in LIMITS.items():
        try:
            print(f"{name}: {attempt(x)}")
        except Exception as error:
            line = str(error).strip().splitlines()[0]
            print(f"{name}: {type(error).__name__}: {line[:90]}")


if __name__ == "__main__":
    main()

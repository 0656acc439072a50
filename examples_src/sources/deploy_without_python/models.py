"""Compile two models: one calls an operator in C++, the other the same in Python."""

import torch
from torch import Tensor

torch.ops.load_library("build/deploy/libstarter.so")
torch.library.register_fake(
    "starter::swiglu", lambda gate, up, limit=None: gate.new_empty(gate.shape)
)


@torch.library.custom_op("python_only::swiglu", mutates_args=())
def written_in_python(gate: Tensor, up: Tensor) -> Tensor:
    """Multiply `up` by the SiLU of `gate`."""
    return torch.nn.functional.silu(gate) * up


written_in_python.register_fake(lambda gate, up: gate.new_empty(gate.shape))


class Block(torch.nn.Module):
    """A linear layer, and an operator on its two halves."""

    def __init__(self, operator):
        super().__init__()
        self.project = torch.nn.Linear(8, 16)
        self.operator = operator

    def forward(self, x):
        """Run the layer, then the operator."""
        gate, up = self.project(x).chunk(2, dim=-1)
        return self.operator(gate, up)


@torch.no_grad()
def compile_to(path, operator):
    """Export a block that calls the operator, and compile it to a file."""
    torch.manual_seed(0)
    block, rows = Block(operator), torch.export.Dim("rows")
    program = torch.export.export(
        block, (torch.ones(2, 8),), dynamic_shapes=({0: rows},)
    )
    torch._inductor.aoti_compile_and_package(program, package_path=path)
    return program, block(torch.ones(1, 8))


program, expected = compile_to("build/deploy/model.pt2", torch.ops.starter.swiglu)
torch.export.save(program, "build/deploy/exported.pt2")
compile_to("build/deploy/python_only.pt2", written_in_python)
print(expected)

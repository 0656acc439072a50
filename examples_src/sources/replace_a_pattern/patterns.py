"""Patterns that Inductor replaces by the operator of norm.py."""

from collections.abc import Callable

import torch
from norm import rms_norm
from torch import Tensor
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch._inductor.pattern_matcher import (
    Match,
    PatternMatcherPass,
    joint_fwd_bwd,
    register_replacement,
)


# [search]
def search(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm as models spell it out."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def replace(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The same by one operator."""
    return rms_norm(x, weight, eps)


# [/search]


# [register]
# Stands for eps while the pattern is traced: no other number in the graph may be equal.
TRACED = {"eps": 0.12345}


def fits(match: Match) -> bool:
    """Whether the operator takes these arguments, and returns the pattern's dtype."""
    x, weight = (match.kwargs[name].meta["val"] for name in ("x", "weight"))
    return (
        weight.shape == x.shape[-1:]
        and weight.dtype == x.dtype
        and isinstance(match.kwargs.get("eps", 0.0), float | int)
    )


def pattern(name: str, trace: Callable, search=search, dtype=torch.float32):
    """Trace both functions on small tensors; return a pass with the one pattern."""
    training = trace is joint_fwd_bwd
    example = [
        torch.empty(4, 8, dtype=dtype, requires_grad=training),
        torch.empty(8, dtype=dtype, requires_grad=training),
    ]
    found = PatternMatcherPass(pass_name=name)
    register_replacement(
        search,
        replace,
        example,
        trace,
        found,
        extra_check=fits,
        scalar_workaround=TRACED,
    )
    return found


# [/register]


# [pass]
class Replace(CustomGraphPass):
    """A pass over a graph, which counts how often its pattern was replaced."""

    def __init__(self, pattern: PatternMatcherPass) -> None:
        self.pattern = pattern
        self.count = 0

    def __call__(self, graph: torch.fx.Graph) -> None:
        """Replace each match in the graph."""
        self.count += self.pattern.apply(graph)

    def uuid(self) -> bytes:
        """Part of the key of Inductor's cache: another pattern, another key."""
        return get_hash_for_files((__file__,), self.pattern.pass_name)


def compiled(function: Callable, **passes: Replace) -> Callable:
    """Compile with passes at the places of Inductor that are named."""
    return torch.compile(function, fullgraph=True, options=passes)


# [/pass]


# [llama]
def llama(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm as Llama spells it: in fp32, and rounded before the weight."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * normed.to(x.dtype)


# [/llama]

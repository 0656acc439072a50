"""Rules by which DTensor shards rms_norm and linear_gelu."""

import torch
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

ops = torch.ops.opbook
ALL = Replicate()


# [norm]
def register_norm() -> None:
    """RMSNorm: any dimension may be sharded but the last, which is the row."""

    @register_sharding(ops.rms_norm.default)
    def _(input, weight=None, eps=None):
        """Of each way: the placements of the outputs, and those of the arguments."""
        return [
            ([rows], [rows, ALL if weight else None, None]) for rows in rows_of(input)
        ]

    @register_sharding(ops.rms_norm_forward.default)
    def _(input, weight=None, eps=None):
        return [
            ([rows, rows], [rows, ALL if weight else None, None])
            for rows in rows_of(input)
        ]

    @register_sharding(ops.rms_norm_backward.default)
    def _(grad, input, weight, rrms, need_input, need_weight, added=None):
        # Each rank adds up the rows that it has: the weight's gradient is their sum.
        weight = ALL if weight else None
        return [
            ([rows, Partial() if rows != ALL else ALL], [rows, rows, weight, rows, *no])
            for rows in rows_of(input)
        ]


no = (None, None)  # arguments that are no tensors


def rows_of(input) -> list:
    """Placements that leave rows whole."""
    return [ALL, *map(Shard, range(input.ndim - 1))]


# [/norm]


# [linear]
def register_linear() -> None:
    """Linear and GELU: shard the rows of the input, or the features of the output."""
    for op, outputs in ((ops.linear_gelu, 1), (ops.linear_gelu_for_backward, 2)):
        register_sharding(op.default)(linear(outputs))


def linear(outputs: int):
    """The rule for an operator with so many outputs."""

    def rule(input, weight, bias=None, tanh_form=False):
        features = Shard(input.ndim - 1)

        def way(output, *arguments):
            arguments = arguments if bias else (*arguments[:2], None)
            return [output] * outputs, [*arguments, None]

        by_rows = [way(rows, rows, ALL, ALL) for rows in rows_of(input)]
        return [*by_rows, way(features, ALL, Shard(0), Shard(0))]

    return rule


# [/linear]


# [wrong]
def register_wrong() -> None:
    """Wrong: rows are cut, so each rank divides by the root of its own part."""

    @register_sharding(ops.rms_norm.default)
    def _(input, weight=None, eps=None):
        row = Shard(input.ndim - 1)
        return [([row], [row, Shard(0) if weight else None, None])]


# [/wrong]

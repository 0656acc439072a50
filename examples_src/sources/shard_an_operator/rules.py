"""Rules by which DTensor shards the operators of operators.py."""

from operators import ops
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

ALL = Replicate()


# [norm]
def register_norm() -> None:
    """RMSNorm: any dimension may be sharded but the last, which is the row."""

    @register_sharding(ops.norm.default)
    def _(x, weight, eps):
        """Of each way: the placements of the outputs, and those of the arguments."""
        return [([rows, rows], [rows, ALL, None]) for rows in rows_of(x)]

    @register_sharding(ops.norm_backward.default)
    def _(grad, x, weight, rrms):
        # Each rank adds up the rows that it has: the weight's gradient is their sum.
        return [
            ([rows, Partial() if rows != ALL else ALL], [rows, rows, ALL, rows])
            for rows in rows_of(x)
        ]


def rows_of(x) -> list:
    """Placements that leave rows whole."""
    return [ALL, *map(Shard, range(x.ndim - 1))]


# [/norm]


# [linear]
def register_linear() -> None:
    """Linear and GELU: shard the rows of the input, or the features of the output."""

    @register_sharding(ops.linear_gelu.default)
    def _(x, weight, bias):
        features = Shard(x.ndim - 1)
        by_rows = [([rows, rows], [rows, ALL, ALL]) for rows in rows_of(x)]
        return [*by_rows, ([features, features], [ALL, Shard(0), Shard(0)])]


# [/linear]


# [wrong]
def register_wrong() -> None:
    """Wrong: rows are cut, so each rank divides by the root of its own part."""

    @register_sharding(ops.norm.default)
    def _(x, weight, eps):
        row = Shard(x.ndim - 1)
        return [([row, ALL], [row, Shard(0), None])]


# [/wrong]

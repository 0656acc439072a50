"""Find what a small call costs
============================

A model that writes one token at a time normalizes a few rows per call. There is next to
nothing to move. What counts is how soon the kernel starts, and what Python takes to
launch it.
"""

import sys
from pathlib import Path

folder = Path(sys.argv[0]).resolve().parents[2] / "benchmarks" / "gpu"
sys.path.insert(0, str(folder))
import charts
import results

rms_norm = results.read("rms_norm")
print(rms_norm)

# %%
# One call is timed in three ways, and each answers another question:
#
# - *Cold call*: events around one call whose launch is hidden. What the GPU needs.
# - *In a CUDA graph*: a graph of many calls is replayed. No launch, and the data of
#   these sizes stays in the cache. The least there is.
# - *Eager*: call after call from Python. The slower of the two sides counts, and with
#   so little to move that is Python.
#
# The dispatcher, autograd and the launcher are in the third panel alone.

kinds = {"median": "cold call, µs", "graph": "in a CUDA graph, µs"}
kinds["launch"] = "eager, µs from call to call"
shapes = [[1, 4096], [16, 4096], [64, 4096]]


def draw(task):
    """Three panels: the same calls, timed in three ways."""
    axes = charts.panels(len(kinds), rows=len(shapes))
    rows = [row for row in rms_norm.where(task=task) if row["shape"] in shapes]
    for axis, (kind, label) in zip(axes, kinds.items(), strict=True):
        charts.dots(axis, results.by_contender(rows, lambda row, k=kind: row.get(k)))
        axis.set_xlabel(label)
        axis.set_xlim(left=0)
    charts.show(axes[0])


# %%
# Forward:

draw("forward")

# %%
# Backward. Autograd walks a graph of nodes. Those of PyTorch's own operators are C++,
# those of all others here are Python, also of ``opbook``:

draw("backward")

# %%
# The targets are for the cold call. First forward, then backward:

charts.time_table(rms_norm, "forward", shapes)

# %%

charts.time_table(rms_norm, "backward", shapes)

# %%
# A verdict counts one percent as noise. That is strict for so short a call: here is how
# far the times of one and the same call lie apart, from the median to the 95th
# percentile, where a peer has the smaller median. Again forward, then backward:

charts.close_table(rms_norm, "forward", shapes)

# %%

charts.close_table(rms_norm, "backward", shapes)

# %%
# Why not sooner? A target in microseconds holds for one machine on one day: the clock
# also sees how soon a kernel starts and ends, and that differs between two machines of
# the same kind. So look at kernels side by side. The first does nothing. The second,
# ``neg``, reads and writes the same rows, without a weight, and adds nothing up.
# ``ncu`` takes the time of the kernel alone and says what a warp waits for in it:
#
# - *memory*: the row and the weight.
# - *code*: instructions, and constants like the kernel's parameters. They come from
#   memory too where the caches are cold.
# - *the sum*: shuffles, shared memory, and the barrier between them. ``neg`` has none
#   of these. Its part is of other slow instructions, which count here too.
#
# ``ncu`` counts these in several runs of a kernel, and no two are alike. Read them as
# rough parts. The rest of the time is the instructions themselves, and other waits.
#
# .. recorded:: few_rows_h200
#
# The last two lines time one kernel, the gradients of one row. It was loaded several
# times, each time to another place in the GPU's memory, and the copies take turns: in
# the first line from the first copy to the last, in the second from the last to the
# first. Read the second line backwards, and it is nearly the first. So the time does
# not depend on the copy, but on its place in the turn, which Python queues at once. A
# gap of this size between two contenders says nothing about their kernels.
#
# The clock of the benchmarks starts each turn with another contender, so that nobody
# keeps a slow place. But its turns are longer than those of the table, and so are its
# times: compare ``rms_norm``.
#
# Nothing is left to overlap: each thread has one vector, and a row waits for memory,
# then for its sum, once. What can be shortened is the code. The form of the kernel for
# few rows, in ``csrc/rms_norm/rms_norm.h``, leaves out what other forms do before their
# first load. Backward has a kernel of its own for few rows: see
# :doc:`/guide/09_gradient`.

"""Find what a small call costs
============================

Measure a call that has next to nothing to compute, as when a model writes one token.
Such a call normalizes a few rows. What counts is how soon the kernel starts, and how
long Python takes to launch it.

It needs matplotlib, and the folder ``benchmarks/gpu`` of the repository.
"""

import sys
from pathlib import Path

folder = Path(sys.argv[0]).resolve().parents[2] / "benchmarks" / "gpu"
if not folder.is_dir():
    print("skipped: needs benchmarks/gpu of a clone: run it in examples_src/benchmarks")
    sys.exit(77)
sys.path.insert(0, str(folder))
import charts
import results

forward = results.read("rms_norm")
backward = results.read("rms_norm_backward")
print(forward, backward, sep="\n\n")

# %%
# One call is timed in three ways, and each answers another question:
#
# - *Cold call*: events around one call whose launch is hidden, by the clean clock of
#   :doc:`90_rms_norm_forward`. What the GPU needs.
# - *In a CUDA graph*: a graph of many calls is replayed. No launch, and the data of
#   these sizes stays in the cache. The least there is.
# - *Eager*: call after call from Python. The slower of the two sides counts, and with
#   so little to move that is Python.
#
# The dispatcher, autograd and the launcher are in the third panel alone.

kinds = {"median": "cold call, µs", "graph": "in a CUDA graph, µs"}
kinds["launch"] = "eager, µs from call to call"
shapes = [[1, 4096], [16, 4096], [64, 4096]]


def draw(measured, task):
    """Three panels: the same calls, timed in three ways."""
    axes = charts.panels(len(kinds), rows=len(shapes))
    rows = [row for row in measured.where(task=task) if row["shape"] in shapes]
    for axis, (kind, label) in zip(axes, kinds.items(), strict=True):
        charts.dots(axis, results.by_contender(rows, lambda row, k=kind: row.get(k)))
        axis.set_xlabel(label)
        axis.set_xlim(left=0)
    charts.show(axes[0])


# %%
# Forward:

draw(forward, "forward")

# %%
# Backward. Autograd walks a graph of nodes. Those of PyTorch's own operators are C++,
# those of all others here are Python, also of ``opbook``:

draw(backward, "backward")

# %%
# The times of the cold call:

charts.time_table(forward, shapes, "forward")

# %%

charts.time_table(backward, shapes, "backward")

# %%
# Why is a call of one row not faster than this? The clock also sees how soon a kernel
# starts and ends, and that differs between two machines of the same kind. So look at
# kernels side by side in one recording. The first does nothing, and already takes most
# of the time. The second, ``neg``, reads and writes the same rows, without a weight,
# and adds nothing up. The third is a plain RMSNorm in Triton, with one program for
# each row. ``ncu`` takes the time of the kernel alone and says what a warp
# waits for in it:
#
# - *memory*: the row and the weight.
# - *code*: instructions, and constants like the kernel's parameters. They come from
#   memory too where the caches are cold.
# - *the sum*: shuffles, shared memory, and the barrier between them. ``neg`` has none
#   of these. Its part comes from other slow instructions, which count here too.
#
# ``ncu`` counts these in several runs of a kernel, and no two are alike. Read them as
# rough parts. The rest of the time is the instructions themselves, and other waits.
#
# .. recorded:: few_rows
#
# The last lines check the clock. In a turn, each contender is called once, and these
# lines time one call at eight places of a turn: *queued* if Python launches the whole
# turn at once, *waited for* if it waits for each call before it launches the next. If
# the time depended on the place, it would depend on which contender comes before. The
# times of *queued* can differ by as much as those of ``neg`` and ``rms_norm``, those of
# *waited for* hardly differ. So the clock of the benchmarks waits for each call. It
# draws the order of each turn by lot, too, so that no contender always follows the same
# one, and keeps the last results alive, so that each call writes elsewhere in memory.
#
# Nothing is left to overlap: a row waits for memory, then for its sum, once. What can
# be shortened is the code, and the way to the sum. So in the library few rows have
# kernels of their own: see :doc:`/explain/the_library_kernel`.

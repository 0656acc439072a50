"""Compare RMSNorm with a copy
===========================

A time alone does not say whether the machine could do better. RMSNorm reads each
element once and writes one, as a copy does, so a copy of the same tensor shows about
how fast it could be.

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

rms_norm = results.read("rms_norm")
TASKS = ("forward", "drawn forward")
print(rms_norm)
print(charts.summary(rms_norm, *TASKS))

# %%
# That is the verdict, by two clocks that are explained below: for how many shapes
# ``opbook`` is ahead of every peer, or within one percent, which counts as noise. The
# peers are eager PyTorch, ``torch.compile`` (*max* is its mode
# ``max-autotune-no-cudagraphs``) and, where they are installed, QuACK, a library of
# kernels in CuTe DSL, and Liger, one in Triton; the page's end names those that were
# absent. ``opbook.triton`` is this project's own, and no peer.
#
# The verdict counts the shapes that the kernels were tuned on, and shapes drawn at
# random. The chart has the tuned ones of more than 64 rows, in bf16 and by the clean
# clock, and :doc:`92_small_shapes` has those of fewer. A dot is the least traffic of a
# call over its median time: the input, the output and the weight, once each. A dot near
# the line leaves nothing to gain. A dot far to the left moves data twice, or waits.

rows = [row for row in rms_norm.where(task="forward") if row["shape"][0] > 64]
charts.shares(results.by_contender(rows, rms_norm.share), "the fastest copy")

# %%
# The first shape is that of a model that normalizes each head of its queries and keys.
# There, eager gives a row of 128 elements a block of its own, which starts, waits for
# memory and ends for little. In the kernels of ``opbook``, short rows share a block.
#
# Shapes that a kernel was tuned on say little about other shapes, so a run also draws
# shapes at random. Each recording has other ones, and keeps their seed. These are all
# cases, tuned and drawn, in which a peer is ahead by more than one percent. The ratio
# is the time of ``opbook`` over that of the best peer:

charts.behind_table(rms_norm, *TASKS)

# %%
# Look at the times beside the ratios. A call of few short rows takes some microseconds,
# of which most go to starting and ending a kernel (:doc:`92_small_shapes`), so a tenth
# of a microsecond is already two percent. Some peers compile a kernel for each length.
# ``opbook`` has a few kernels for all lengths, and :doc:`/explain/the_library_kernel`
# says which of them a row takes.
#
# Another GPU has other ratios. The forms of the kernels of ``opbook`` were chosen on an
# H100. An H200 has the same multiprocessors and faster memory, so what is not memory
# traffic weighs more there. This is its verdict, forward and backward, with other drawn
# shapes, and the cases in which a peer is ahead:

h200 = results.read("rms_norm_h200")
EVERY = (*TASKS, "backward", "drawn backward")
print(h200)
print(charts.summary(h200, *EVERY))
charts.behind_table(h200, *EVERY)

# %%
# On a machine with a GPU, this script measures instead of reading the recording of the
# H100. The end of this page says which peer could not take part.

# %%
# How it is measured
# ------------------
#
# Two clocks time each call, both with data that comes from memory. They differ in what
# the call finds in the L2 cache:
#
# .. list-table::
#    :header-rows: 1
#
#    * - Clock
#      - Before each call
#      - What the call finds in the cache
#      - What it measures
#    * - clean
#      - a buffer much larger than the cache is read
#      - lines that may be dropped
#      - the kernel, and what surrounds it on the GPU
#    * - dirty
#      - the same buffer is written, as ``triton.testing.do_bench`` does
#      - lines that have to be written to memory first
#      - the kernel right after an operator that wrote its results
#
# The contenders take turns, in an order drawn anew each time. CUDA events around the
# call give its time. The reading or writing before it goes on until Python has launched
# the call, so the time contains none of Python's work. It does contain a few
# microseconds that the GPU takes between the two events: a copy of one row shows how
# many. So ratios of small shapes are nearer to one than those of the kernels. Each call
# allocates its output, the copy too. The code is in ``benchmarks/gpu/clock.py``.
#
# The chart above is by the clean clock, and a dot beyond 100 % does not mean that a
# kernel moves bytes faster than memory can. A call, the copy too, ends before all that
# it wrote has reached memory, because the cache holds the rest. By the clean clock that
# rest costs nothing, so a call that leaves more of its results in the cache than the
# copy does can pass the line. By the dirty clock a call pays for the rest of the call
# before.
#
# The same shapes by the dirty clock, beside the fastest copy by the clean clock:

charts.shares(results.by_contender(rows, rms_norm.dirty_share), "the fastest copy")

# %%
# The times by the clean clock. The line from each dot leads to the 95th percentile: one
# call in twenty took longer. A long line means that the calls differ much, which the
# median does not show.

medians = results.by_contender(rows, lambda row: row["median"])
slowest = results.by_contender(rows, lambda row: row["p95"])
charts.times(medians, slowest)

# %%
# The targets are this project's own, for the clean clock, in
# ``benchmarks/gpu/targets.py``:

charts.share_table(rms_norm, "forward")

# %%
# The first result of every call is compared with the formula in fp64. The unit is the
# last place of the largest value in bf16. A contender that rounds once stays near a
# half.

charts.error_table(rows)

# %%
# Contenders that could not take part in some case, and why:

for task in TASKS:
    print(f"{task}: {rms_norm.absent(task=task)}")

# %%
# .. dropdown:: What the run printed
#
#    .. recorded:: benchmark_rms_norm

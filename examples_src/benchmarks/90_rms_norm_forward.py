"""Hold RMSNorm against a copy
===========================

RMSNorm reads each element once and writes one. It can hardly be faster than a copy of
the same tensor, and that is what to hold it against: a time alone does not say whether
the machine could do better.

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
import targets

rms_norm = results.read("rms_norm")
print(rms_norm)

# %%
# The contenders take turns, in an order drawn anew each time. Before each call a buffer
# much larger than the cache is read, so that all data comes from memory. Events around
# the call give its time; the reading goes on until Python has launched the call, so
# that no launch is in it. Each call allocates its output, the copy too. The code is in
# ``benchmarks/gpu/speed.py``.
#
# A dot is the least traffic of the call over its median time: the input, the output
# and the weight, once each. The line at 100 % is the fastest copy of the run. A dot
# near the line leaves nothing to gain. One far to the left moves data twice, or waits.
#
# A call, the copy too, ends before all that it wrote has reached memory: the cache
# holds the rest. Whose rest is larger can pass the line. Where its results are larger
# than the cache, ``opbook`` asks the cache to keep them, and
# :doc:`/reduction/5_make_it_fast` times the operator that comes next, too.
#
# The first shape is that of a model that normalizes each head of its queries and keys.
# There, eager gives a row of 128 elements a block of its own, which starts, waits for
# memory and ends for little. In the kernels of ``opbook``, short rows share one.

rows = [row for row in rms_norm.where(task="forward") if row["shape"][0] > 64]
charts.shares(results.by_contender(rows, rms_norm.share), "the fastest copy")

# %%
# The times behind it. The line from each dot leads to the 95th percentile: one call in
# twenty took longer. Where it is long, the median hides something.

medians = results.by_contender(rows, lambda row: row["median"])
slowest = results.by_contender(rows, lambda row: row["p95"])
charts.times(medians, slowest)

# %%
# The targets are this project's own, in ``benchmarks/gpu/targets.py``. The verdict also
# says when a peer of the same run is ahead by more than the noise. What ``ncu`` says of
# rows of 4096 is in :doc:`/reduction/5_make_it_fast`.

charts.share_table(rms_norm, "forward")

# %%
# The noise counts as one percent. How far the times of one and the same call lie apart,
# from the median to the 95th percentile, says how much that is. Here it is for the
# shapes at which a peer has the smaller median:

charts.close_table(rms_norm, "forward", targets.SHARES["forward"])

# %%
# A fast result that is wrong is worth nothing, so the first result of every call is
# compared with the formula in fp64. The unit is the last place of the largest value in
# bf16. Who rounds once stays near a half.

charts.error_table(rows)

# %%
# Who could not take part, and why:

print(rms_norm.absent(task="forward"))

# %%
# .. dropdown:: What the run printed
#
#    .. recorded:: benchmark_rms_norm_h200

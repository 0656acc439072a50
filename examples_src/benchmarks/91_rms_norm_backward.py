"""Measure the gradients of RMSNorm
================================

The backward pass has two results from the same tensors: does a kernel read them once?
The gradient of the input needs a sum along each row, and the gradient of the weight
needs a sum down all rows.

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

rms_norm = results.read("rms_norm_backward")
TASKS = ("backward", "drawn backward")
print(rms_norm)
print(charts.summary(rms_norm, *TASKS))

# %%
# The verdict counts the shapes that the kernels were tuned on and shapes drawn at
# random, by the two clocks of :doc:`90_rms_norm_forward`. The chart has the tuned ones,
# by the clean clock. The least traffic is the input and the incoming gradient, read
# once, and the gradient of the input, written once. Every contender is called in the
# same way, through its public function and ``torch.autograd.grad``.

rows = [row for row in rms_norm.where(task="backward") if row["shape"][0] > 64]
charts.shares(results.by_contender(rows, rms_norm.share), "the fastest copy")

# %%
# Look at where the dots go as the rows grow. A row fits into the registers of a block
# up to some width. A kernel for wider rows reads them twice, or splits a row over
# several blocks. If both tensors come from memory twice, a kernel moves five tensors
# where three are enough, and stays below three fifths of the line.
#
# These are all cases, tuned and drawn, in which a peer is ahead by more than one
# percent. The ratio is the time of ``opbook`` over that of the best peer:

charts.behind_table(rms_norm, *TASKS)

# %%
# The times, with a line from each median to the 95th percentile:

medians = results.by_contender(rows, lambda row: row["median"])
slowest = results.by_contender(rows, lambda row: row["p95"])
charts.times(medians, slowest)

# %%
# The targets, and the best of the others in the same run:

charts.share_table(rms_norm, "backward")

# %%
# Both gradients against fp64. The gradient of the weight adds up one value from every
# row, so a contender that adds in bf16 would show here.

charts.error_table(rows)

# %%
# Contenders that could not take part in some case, and why:

for task in TASKS:
    print(f"{task}: {rms_norm.absent(task=task)}")

# %%
# .. dropdown:: What the run printed
#
#    .. recorded:: benchmark_rms_norm_backward

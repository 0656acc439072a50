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

rms_norm = results.read("rms_norm")
print(rms_norm)

# %%
# Every contender is asked in the same way, through its public function and
# ``torch.autograd.grad``. The least traffic is the input and the incoming gradient,
# read once, and the gradient of the input, written once. The rest is small.
#
# First the cases in which a peer is ahead by more than one percent, on chosen shapes
# and on shapes drawn at random, by the two clocks of
# :doc:`90_rms_norm_forward`. By the dirty clock the cache is full of lines that the
# call has to write back:

TASKS = ("backward", "drawn backward")
print(charts.summary(rms_norm, *TASKS))
charts.behind_table(rms_norm, *TASKS)

# %%
# All contenders on the chosen shapes, by the clean clock. A row fits into the registers
# of a block up to some width. A kernel for wider rows reads them twice, or splits a row
# over several blocks. So look at where the dots go as the rows grow.

rows = [row for row in rms_norm.where(task="backward") if row["shape"][0] > 64]
charts.shares(results.by_contender(rows, rms_norm.share), "the fastest copy")

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
# row: who added in bf16 would show here.

charts.error_table(rows)

# %%
# Who could not take part, and why:

print(rms_norm.absent(task="backward"))

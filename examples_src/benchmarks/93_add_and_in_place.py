"""Fuse an addition with RMSNorm
=============================

One kernel for an addition and the RMSNorm after it saves reading the sum again. In a
transformer, an addition comes before almost every RMSNorm. Written separately, the
addition writes the sum and RMSNorm reads it. Writing the result over the input saves no
time, but needs no second tensor.

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
print(charts.summary(rms_norm, "add", "in place"))

# %%
# The verdict is by the two clocks of :doc:`90_rms_norm_forward`, the charts are by the
# clean one. Addition and RMSNorm together read two tensors, and write the sum and the
# norm. Eager moves five tensors where four are enough, so it stays below four fifths of
# the line.

rows = [row for row in rms_norm.where(task="add") if row["shape"][0] > 64]
charts.shares(results.by_contender(rows, rms_norm.share), "the fastest copy")

# %%
# In place, eager PyTorch needs two operators, ``x.copy_(rms_norm(x))``, and moves the
# data twice. ``torch.compile`` makes one kernel of them.

rows = [row for row in rms_norm.where(task="in place") if row["shape"][0] > 64]
charts.shares(results.by_contender(rows, rms_norm.share), "the fastest copy")

# %%
# The cases in which a peer is ahead by more than one percent, by either clock:

charts.behind_table(rms_norm, "add", "in place")

# %%
# Both are compared with fp64 like the rest. Of the addition, the sum is checked too.
# ``opbook`` rounds the sum as eager does before it normalizes it, so here two roundings
# add up:

charts.error_table(rms_norm.where(task="add"))

# %%

charts.error_table(rms_norm.where(task="in place"))

# %%
# Contenders that could not take part, and why:

print(rms_norm.absent(task="add"))

"""Compare a fused layer with its matrix product
=============================================

A linear layer with GELU should take hardly longer than its matrix product alone. The
product is bound by arithmetic. Bias and GELU are bound by memory, unless they happen
before the product is written. So compare the whole layer with the product.

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

linear_gelu = results.read("linear_gelu")
TASKS = ("forward", "drawn forward")
print(linear_gelu)
print(charts.summary(linear_gelu, *TASKS))

# %%
# The verdict is by the two clocks of :doc:`90_rms_norm_forward`. It counts the shape
# that the operator was tuned on, which the chart shows, and shapes drawn at random. On
# the drawn shapes the operator is compared with eager's two calls and with ATen's fused
# call.
#
# In the chart, 100 % is the fastest product without a bias of the whole run, in the
# dtype of the dot. ``none`` is GELU with the error function, ``tanh`` the form with the
# hyperbolic tangent. The vendor's library has a fused epilogue for ``tanh`` only. A
# contender that writes the product and reads it again is further to the left. In the
# rows of ``none``, only ``opbook.triton`` does not write the product.


def by_form(rows):
    """Rates by contender, then by form and dtype."""
    return results.by_contender(
        rows, linear_gelu.rate, lambda row: f"{row['form']}, {row['dtype']}"
    )


print("rows, inputs, outputs:", linear_gelu.rows[0]["shape"])
forward = linear_gelu.where(task="forward")
charts.shares(by_form(forward), "the fastest matrix product")

# %%
# A GPU under full load lowers its clocks to stay within its power, so compare the dots
# of one row: those contenders took turns. The row's own product did so too, and is one
# of the grey marks.
#
# These are the cases, tuned and drawn, in which a peer is ahead by more than one
# percent. Most of them are short, and their times differ more than that from call to
# call: what the run printed, at the end, has the 95th percentiles.

charts.behind_table(linear_gelu, *TASKS)

# %%
# Backward has two products, for the gradients of input and weight. A contender that did
# not keep the value before GELU computes a third:

backward = linear_gelu.where(task="backward")
charts.shares(by_form(backward), "the fastest matrix product")

# %%
# The targets are ratios of two times of one run:

charts.ratio_table(linear_gelu)

# %%
# In the tanh form, the library calls ``aten::_addmm_activation``, which adds the bias
# and applies GELU to its sums in the kernel of the product, and still takes longer than
# the product alone. ``ncu`` shows what changed: the number of instructions grows, and
# the tensor cores, hardly ever idle before, are so more often.
#
# .. recorded:: linear_gelu_ncu

# %%
# All results against fp64, gradients included. The unit is the last place of the
# largest value, in the dtype of the result:

charts.error_table(forward + backward)

# %%
# Contenders that could not take part, and why:

print(linear_gelu.absent())

# %%
# .. dropdown:: What the run printed
#
#    .. recorded:: benchmark_linear_gelu

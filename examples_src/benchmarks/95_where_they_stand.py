"""Place the operators under the roofline
======================================

See for each operator whether memory or arithmetic limits it, and how near it is to that
limit. The picture shows how many operations an operator does for each byte that it has
to move, and how many a second.

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
import matplotlib.pyplot as plt
import results

rms_norm = results.read("rms_norm", "rms_norm_backward")
linear_gelu = results.read("linear_gelu")
print(rms_norm)
print(linear_gelu)

# %%
# The roof has two parts, both measured. To the left a copy is the limit, and to the
# right a matrix product of the vendor's library, which belongs to the recording of
# ``linear_gelu``. If that is of another GPU, as the lines above tell, each operator
# still stands below the part of its own.

bandwidth = rms_norm.data["copy"] * 1e6
rate = linear_gelu.data["products"]["bfloat16"] * 1e6
ridge = rate / bandwidth
print(f"copy {bandwidth / 1e12:.2f} TB/s, product {rate / 1e12:.0f} TFLOP/s")
print(f"they meet at {ridge:.0f} FLOP/byte")

# %%
# RMSNorm squares, adds and multiplies twice for each element. Its gradients take about
# three times as much. All points of RMSNorm are of one large shape.

per_element = {"forward": 4, "backward": 12, "add": 5}
points = {}
for task, operations in per_element.items():
    row = rms_norm.where(task=task, shape=[32768, 4096], contender="opbook")[0]
    count = operations * row["shape"][0] * row["shape"][1]
    points[f"rms_norm, {task}"] = (count / row["bytes"], count / row["median"] * 1e6)
row = linear_gelu.where(task="forward", form="tanh", contender="opbook")[0]
rows, inputs, outputs = row["shape"]
moved = 2 * (rows * inputs + inputs * outputs + rows * outputs)
speed = row["operations"] / row["median"] * 1e6
points["linear_gelu"] = (row["operations"] / moved, speed)

for name, (intensity, speed) in points.items():
    share = speed / min(rate, bandwidth * intensity)
    print(f"{name:22} {intensity:7.2f} FLOP/byte, {share:4.0%} of the roof")

# %%
# Left of the ridge, an operator near the roof gets faster only if it moves fewer bytes.
# That is why it pays there to fuse an addition, or to read the tensors once for both
# gradients, and why a faster multiplication would not help.

[axis] = charts.panels(rows=8)
span = [0.5, ridge, 16 * ridge]
axis.loglog(span, [min(rate, bandwidth * place) for place in span], color="#5b8db8")
for name, (intensity, speed) in points.items():
    axis.plot(intensity, speed, "D", color="#d9734e")
    beside = {"xytext": (8, -4), "textcoords": "offset points"}
    axis.annotate(name, (intensity, speed), fontsize=9, **beside)
axis.margins(x=0.15)
axis.set(xlabel="FLOP per byte moved", ylabel="FLOP/s")
axis.set_frame_on(False)
plt.show()

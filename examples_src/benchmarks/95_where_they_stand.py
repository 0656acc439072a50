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

forward = results.read("rms_norm")
backward = results.read("rms_norm_backward")
linear_gelu = results.read("linear_gelu")
print(forward, backward, linear_gelu, sep="\n\n")

# %%
# The roof has two parts, both measured. To the left a copy is the limit. Each recording
# has its own, since GPUs differ in their memory. To the right the limit is a matrix
# product of the vendor's library, which the recording of ``linear_gelu`` has.

rate = linear_gelu.data["products"]["bfloat16"] * 1e6
print(f"product {rate / 1e12:.0f} TFLOP/s")
for of in (forward, backward):
    bandwidth = of.data["copy"] * 1e6
    print(f"{of.data['device']}: copy {bandwidth / 1e12:.2f} TB/s", end=", ")
    print(f"meets the product at {rate / bandwidth:.0f} FLOP/byte")

# %%
# RMSNorm squares, adds and multiplies twice for each element. Its gradients take about
# three times as much. All points of RMSNorm are of one large shape.

points = {}  # operations for each byte and each second, and the roof there
for of, task, operations in (
    (forward, "forward", 4),
    (forward, "add", 5),
    (backward, "backward", 12),
):
    row = of.row("opbook", task=task, shape=[32768, 4096])
    count = operations * row["shape"][0] * row["shape"][1]
    intensity = count / row["bytes"]
    roof = of.data["copy"] * 1e6 * intensity
    points[f"rms_norm, {task}"] = (intensity, count / row["median"] * 1e6, roof)
row = linear_gelu.where(task="forward", form="tanh", contender="opbook")[0]
rows, inputs, outputs = row["shape"]
moved = 2 * (rows * inputs + inputs * outputs + rows * outputs)
speed = row["operations"] / row["median"] * 1e6
points["linear_gelu"] = (row["operations"] / moved, speed, rate)

for name, (intensity, speed, roof) in points.items():
    print(f"{name:22} {intensity:7.2f} FLOP/byte, {speed / roof:4.0%} of the roof")

# %%
# Left of the ridge, where the two parts meet, an operator near the roof gets faster
# only if it moves fewer bytes. That is why it pays there to fuse an addition, or to
# read the tensors once for both gradients, and why a faster multiplication would not
# help.

[axis] = charts.panels(rows=8)
for of in (forward, backward):
    ridge = rate / of.data["copy"] / 1e6
    span = [0.5, ridge, 4000]
    axis.loglog(span, [rate * min(place / ridge, 1) for place in span], color="#5b8db8")
for name, (intensity, speed, _) in points.items():
    axis.plot(intensity, speed, "D", color="#d9734e")
    beside = {"xytext": (8, -4), "textcoords": "offset points"}
    axis.annotate(name, (intensity, speed), fontsize=9, **beside)
axis.margins(x=0.15)
axis.set(xlabel="FLOP per byte moved", ylabel="FLOP/s")
axis.set_frame_on(False)
plt.show()

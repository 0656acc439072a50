"""See where an operator spends its time
=====================================

Draw the calls that an operator makes as bars, and see which of them take the time. The
profiler keeps every call with its start and its end, so the picture has callers above
and callees below, in order. A table of totals does not show the order.

It needs torch, opbook, and matplotlib for the chart.

.. topics:: 87
"""

import importlib.util
import os
import sys

os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler's own log

import torch
from torch.profiler import ProfilerActivity, profile, record_function

try:
    from opbook import rms_norm
except ImportError as error:
    print(f"skipped: needs opbook, built in a clone of its repository: {error}")
    sys.exit(77)

# %%
# One training step: the operator, a loss, and the backward pass. ``record_function``
# gives a stretch of Python a name, which the profile then shows like an operator's.

input = torch.randn(512, 4096, requires_grad=True)
weight = torch.randn(4096)


def step() -> None:
    """Run forward and backward once."""
    with record_function("forward"):
        loss = rms_norm(input, weight).sum()
    with record_function("backward"):
        loss.backward()


# %%
# Warm up first: the first call allocates memory, starts threads and loads code.

for _ in range(3):
    step()
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    step()

# %%
# ``key_averages`` adds up the calls by name. The *self* time of a function leaves out
# the time of the functions that it calls.

averages = profiler.key_averages()
for event in sorted(averages, key=lambda event: -event.self_cpu_time_total)[:6]:
    milliseconds = event.self_cpu_time_total / 1000
    print(f"{event.key[:44]:44} {event.count:3} calls {milliseconds:8.2f} ms")

# %%
# ``events`` has every call. The depth of a call is the number of calls around it. It is
# counted for each thread, because the backward pass of GPU tensors has its own thread.

calls = sorted(profiler.events(), key=lambda e: (e.time_range.start, -e.time_range.end))
start = min(call.time_range.start for call in calls)
bars, holding = [], {}
for call in calls:
    stack = holding.setdefault(call.thread, [])
    while stack and stack[-1] <= call.time_range.start:
        stack.pop()
    begin = (call.time_range.start - start) / 1000
    length = (call.time_range.end - call.time_range.start) / 1000
    bars.append((call.thread, len(stack), begin, length, call.name))
    stack.append(call.time_range.end)
print(f"{len(bars)} calls in {len(holding)} threads")
assert any(name == "opbook::rms_norm_backward" for *_, name in bars)

# %%
# Draw the bars, and look at the calls inside ``opbook::rms_norm_backward``: one is a
# copy. The gradient of ``sum`` is one number, expanded over the output's shape, and the
# kernel wants a number for each element.

if importlib.util.find_spec("matplotlib") is None:
    print("no chart: needs matplotlib")
    sys.exit()

import matplotlib.pyplot as plt

GREY = "#808080"  # readable on white and on black
whole = max(begin + length for *_, begin, length, _ in bars)
figure, axes = plt.subplots(
    len(holding), 1, figsize=(8, 2.4 * len(holding)), sharex=True, facecolor="none"
)
figure.set_layout_engine("constrained")
for axis, thread in zip(axes if len(holding) > 1 else [axes], holding, strict=True):
    for owner, depth, begin, length, name in bars:
        if owner != thread:
            continue
        color = "#d9734e" if name.startswith("opbook") else "#5b8db8"
        axis.barh(depth, length, 0.9, left=begin, color=color, edgecolor=GREY, lw=0.3)
        if length > whole / 8:
            short = name.rpartition(": ")[2][: int(60 * length / whole)]
            axis.text(
                begin, depth, f" {short}", va="center", fontsize=7, color="#202020"
            )
    axis.set(yticks=[], frame_on=False, ylabel=f"thread {thread}")
    axis.yaxis.label.set_color(GREY)
    axis.tick_params(labelcolor=GREY, color=GREY)
    axis.invert_yaxis()
axis.set_xlabel("milliseconds", color=GREY)
plt.show()

"""Profile a Triton operator
=========================

Find out where a Triton operator spends its time: in the kernel, in PyTorch's dispatch,
or in the Python code that launches the kernel. PyTorch's profiler records all three.
On a GPU, Triton also says how many registers the kernel takes, and whether it spills.
:doc:`/howto/profile` uses other profilers, and :doc:`50_profile_an_operator` draws a
profile.

It needs torch, triton and numpy.

.. topics:: 3 25 58 87 91
"""

# %%
# Without a GPU, Triton's interpreter runs the kernel on the CPU. The profile then shows
# who calls whom and how often, while its times say nothing of a GPU.

import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler's own log

import torch
from torch.profiler import ProfilerActivity, profile, record_function

device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
if importlib.util.find_spec("triton") is None:
    print("skipped: needs triton (pip install triton numpy)")
    sys.exit(77)

import triton
import triton.language as tl

# %%
# The operator is a softmax over rows. One program computes a row. ``record_function``
# puts a name of your own into the profile: here around the launch, so that you see what
# the launch costs beside the kernel.


@triton.jit
def softmax_kernel(input, output, columns, BLOCK: tl.constexpr):
    """Compute the softmax of one row, which fits one block."""
    row = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(input + row + column, mask=inside, other=float("-inf")).to(tl.float32)
    powers = tl.exp(x - tl.max(x, axis=0))
    y = powers / tl.sum(powers, axis=0)
    tl.store(output + row + column, y.to(output.dtype.element_ty), mask=inside)


launched = []  # what Triton says of the last launch


@torch.library.custom_op("profiled::softmax", mutates_args=())
def softmax(input: torch.Tensor) -> torch.Tensor:
    """Return the softmax over the last dimension."""
    input = input.contiguous()
    output = torch.empty_like(input)
    if output.numel() > 0:
        columns = input.shape[-1]
        grid = (output.numel() // columns,)
        block = triton.next_power_of_2(columns)
        with record_function("launch softmax_kernel"):
            kernel = softmax_kernel[grid](input, output, columns, BLOCK=block)
        launched[:] = [kernel]
    return output


@softmax.register_fake
def _(input):
    return torch.empty_like(input, memory_format=torch.contiguous_format)


# %%
# Compare before you measure. The first call compiles the kernel and allocates memory,
# which does not belong into the profile.

rows = 4096 if device == "cuda" else 16
input = torch.randn(rows, 1000, device=device)
torch.testing.assert_close(softmax(input), torch.softmax(input, dim=-1))

# %%
# Profile ten calls. A GPU works on while Python goes on, so it needs a ``synchronize``
# before the profile ends.

activities = [ProfilerActivity.CPU]
activities += [ProfilerActivity.CUDA] if device == "cuda" else []
with profile(activities=activities) as profiler:
    for _ in range(10):
        softmax(input)
    if device == "cuda":
        torch.cuda.synchronize()

print(f"{'for each call':30} {'calls':>5} {'CPU µs':>9} {'own µs':>9} {'GPU µs':>8}")
averages = profiler.key_averages()
for event in sorted(averages, key=lambda event: -event.cpu_time_total)[:8]:
    times = (event.cpu_time_total, event.self_cpu_time_total, event.device_time_total)
    total, own, gpu = (time / event.count for time in times)
    print(f"{event.key[:30]:30} {event.count:5} {total:9.1f} {own:9.1f} {gpu:8.1f}")

# %%
# Read the table from the operator downwards. ``profiled::softmax`` contains the launch;
# what it takes beyond the launch is the allocation and PyTorch's dispatch. On a GPU, if
# the launch takes longer than the kernel, the GPU waits for Python: a faster kernel
# would not help, but larger inputs or a CUDA graph would. The interpreter has no
# kernel to wait for: it computes during the launch, and also copies the tensors.

# %%
# The trace has every call with its start and its end. Open the file in Perfetto
# (https://ui.perfetto.dev) to see calls in order.

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "trace.json")
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
launches = [event for event in events if event.get("name") == "launch softmax_kernel"]
print(f"{len(events)} events in the trace, {len(launches)} of them launches")

# %%
# A launch returns the kernel that Triton compiled, which knows its registers and
# spills. ``triton.testing.do_bench`` clears the GPU's cache before each call it times.

if device == "cuda":
    kernel = launched[0]
    print(f"{kernel.n_regs} registers, {kernel.n_spills} spilled")
    milliseconds = triton.testing.do_bench(lambda: softmax(input), return_mode="median")
    moved = 2 * input.numel() * input.element_size()
    print(f"{milliseconds * 1e3:.1f} µs, {moved / milliseconds / 1e6:.0f} GB/s")
else:
    print("registers and times: on a GPU only, here the interpreter ran the kernel")

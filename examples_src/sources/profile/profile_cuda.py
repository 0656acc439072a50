"""Profiles RMSNorm, ours and eager's, on the GPU with torch.profiler."""

import os
import re

os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler's own log

import norm
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

ROWS, HIDDEN, CALLS = 16384, 4096, 20


def short(name: str) -> str:
    """A kernel's name without its namespaces and parameters."""
    scopes = r"(?:(?:\w+|\(anonymous namespace\))::)+(?=\w+[<(])"
    name = re.sub(rf"^void |{scopes}", "", name)
    return re.sub(r"(?<=[\w>])\(.*", "", name)[:53]


def ours(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The operator under a name of our own."""
    with record_function("our norm"):
        return norm.rms_norm(x, weight)


def eager(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """PyTorch's function."""
    return torch.nn.functional.rms_norm(x, (HIDDEN,), weight)


def main() -> None:
    """Print one line for each operator and one for each kernel."""
    x = torch.randn(ROWS, HIDDEN, device="cuda", dtype=torch.float16)
    weight = torch.randn(HIDDEN, device="cuda", dtype=torch.float16)
    for function in (ours, eager):
        for _ in range(5):  # warm up: the first call loads the kernel
            function(x, weight)
        torch.cuda.synchronize()
        activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        with profile(activities=activities, acc_events=True) as profiler:
            for _ in range(CALLS):
                function(x, weight)
            torch.cuda.synchronize()
        averages = profiler.key_averages()
        print(f"{function.__name__:62}{'calls':>6}{'CPU us':>9}{'GPU us':>9}")
        for event in averages:
            on_gpu = event.device_type == DeviceType.CUDA
            annotation = on_gpu and event.key == "our norm"  # the GPU's side of it
            if event.count != CALLS or annotation:
                continue
            cpu, gpu = event.self_cpu_time_total, event.self_device_time_total
            name = ("  kernel " if on_gpu else "") + short(event.key)
            print(f"{name:62}{event.count:6}{cpu / CALLS:9.1f}{gpu / CALLS:9.1f}")


if __name__ == "__main__":
    main()

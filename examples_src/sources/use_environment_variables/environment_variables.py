"""See what environment variables change on an NVIDIA GPU, one process for each case."""

import os
import re
import subprocess
import sys
from pathlib import Path

import torch


# [fault]
def fault() -> None:
    """Index out of bounds on the GPU, behind work that keeps it busy."""
    table = torch.zeros(4, device="cuda")
    index = torch.tensor([1], device="cuda")
    table[index].mul(2).sum().item()  # load the kernels before the fault
    busy = torch.ones(8192, 8192, device="cuda")
    for _ in range(20):
        busy = busy @ busy
    index.add_(8)
    rows = table[index]  # the fault
    scaled = rows.mul(2)
    total = scaled.sum()
    print(total.item())  # the first line that waits for the GPU


# [/fault]


def visible() -> None:
    """Count the GPUs that this process may use."""
    print(f"device_count {torch.cuda.device_count()}")


def memory() -> None:
    """Free a tensor, and see what the process keeps of the GPU's memory."""
    torch.ones(1, device="cuda")
    before, _ = torch.cuda.mem_get_info()
    tensor = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    del tensor
    after, _ = torch.cuda.mem_get_info()
    print(f"kept after del: {(before - after) >> 20} MiB")


def run(case: str, **variables: str) -> None:
    """Run a case in a process of its own: after a fault the process has no GPU."""
    names = ("CUDA_LAUNCH_BLOCKING", "PYTORCH_NO_CUDA_MEMORY_CACHING")
    inherited = {k: v for k, v in os.environ.items() if k not in names}
    done = subprocess.run(
        [sys.executable, __file__, case],
        env=inherited | variables,
        capture_output=True,
        text=True,
        timeout=300,
    )
    setting = " ".join(f"{name}={value!r}" for name, value in variables.items())
    print(f"{case}, {setting or 'nothing set'}")
    text = done.stdout + done.stderr
    if done.returncode == 0:
        print(f"  {done.stdout.strip()}")
        return
    if asserted := re.search(r"Assertion `[^`']*[`'] failed", text):
        print(f"  on the GPU: {asserted[0]}")
    source = Path(__file__).read_text().splitlines()
    frames = re.findall(rf'File "{re.escape(__file__)}", line (\d+)', text)
    if frames:
        print(f"  traceback ends at: {source[int(frames[-1]) - 1].strip()}")
    error = [line for line in text.splitlines() if re.match(r"[\w.]+Error: ", line)]
    print(f"  {error[-1] if error else f'exit status {done.returncode}'}")
    if hint := re.search(r"Compile with `TORCH_USE_CUDA_DSA`.*", text):
        print(f"  {hint[0]}")


def readers() -> None:
    """Say which of PyTorch's own libraries hold the names of the variables."""
    folder = Path(torch.__file__).parent / "lib"
    libraries = [folder / "libc10.so", folder / "libc10_cuda.so"]
    for name in ("CUDA_LAUNCH_BLOCKING", "PYTORCH_NO_CUDA_MEMORY_CACHING"):
        found = [p.name for p in libraries if name.encode() in p.read_bytes()]
        print(f"{name} is in {', '.join(found) or 'neither'}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        {"fault": fault, "visible": visible, "memory": memory}[sys.argv[1]]()
        sys.exit()
    run("fault")
    run("fault", CUDA_LAUNCH_BLOCKING="1")
    run("fault", TORCH_USE_CUDA_DSA="1")
    run("visible")
    run("visible", CUDA_VISIBLE_DEVICES="")
    run("memory")
    run("memory", PYTORCH_NO_CUDA_MEMORY_CACHING="1")
    readers()

"""Asks ncu what one launch of the RMSNorm kernel does to the GPU."""

import csv
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROWS, HIDDEN = 16384, 4096
METRICS = {
    "gpu__time_duration.sum": "time, ns",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "DRAM, % of peak",
    "dram__bytes_read.sum": "DRAM read, bytes",
    "dram__bytes_write.sum": "DRAM written, bytes",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy, %",
    "launch__registers_per_thread": "registers per thread",
    "launch__block_size": "threads per block",
    "launch__grid_size": "blocks",
}


def launch() -> None:
    """What ncu watches: a few calls, of which it measures one."""
    import torch

    import opbook

    x = torch.randn(ROWS, HIDDEN, device="cuda", dtype=torch.float16)
    weight = torch.randn(HIDDEN, device="cuda", dtype=torch.float16)
    for _ in range(3):
        opbook.rms_norm(x, weight)
    torch.cuda.synchronize()


def command(log: Path) -> list[str]:
    """One launch of one kernel, few metrics, the clocks left alone."""
    ncu = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")
    if ncu is None:
        sys.exit("ncu not found: install Nsight Compute")
    which = ["--kernel-name", "regex:rms_norm_kernel"]
    which += ["--launch-skip", "1", "--launch-count", "1"]
    what = ["--metrics", ",".join(METRICS), "--clock-control", "none"]
    form = ["--csv", "--print-units", "base", "--log-file", str(log)]
    return [ncu, *which, *what, *form, sys.executable, __file__, "launch"]


def main() -> None:
    """Run ncu and print a table of its metrics."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "ncu.csv")
        done = subprocess.run(command(log), capture_output=True, text=True)
        text = log.read_text() if log.exists() else ""
        rows = [line for line in text.splitlines() if line.startswith('"')]
        found = {row["Metric Name"]: row for row in csv.DictReader(rows)}
        if done.returncode or not found:
            sys.exit(f"ncu measured nothing\n{text}{done.stdout}{done.stderr}")
    print("ncu --clock-control none --kernel-name regex:rms_norm_kernel \\")
    print("    --launch-skip 1 --launch-count 1 --metrics ...")
    print(f"rms_norm_kernel, {ROWS} rows of {HIDDEN} fp16")
    for metric, name in METRICS.items():
        value = found[metric]["Metric Value"] if metric in found else "not available"
        print(f"  {name:22}{value:>14}   {metric}")
    read = ROWS * HIDDEN * 2
    print(f"  {'input, bytes':22}{read:14,}   what it has to read")


if __name__ == "__main__":
    launch() if sys.argv[1:] == ["launch"] else main()

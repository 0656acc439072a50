"""Asks ncu what one launch of the RMSNorm kernel does to the GPU."""

import sys

import ncu

ROWS, HIDDEN = 16384, 4096
CALLS = 3  # of which the last counts
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
    """What ncu watches: a few calls."""
    import norm
    import torch

    x = torch.randn(ROWS, HIDDEN, device="cuda", dtype=torch.float16)
    weight = torch.randn(HIDDEN, device="cuda", dtype=torch.float16)
    for _ in range(CALLS):
        norm.rms_norm(x, weight)
    torch.cuda.synchronize()


def main() -> None:
    """Run ncu and print a table of its metrics."""
    *_, found = ncu.counted(__file__, "rms_norm_kernel", list(METRICS), CALLS)
    print("ncu --clock-control none --kernel-name regex:rms_norm_kernel --metrics ...")
    print(f"rms_norm_kernel, {ROWS} rows of {HIDDEN} fp16")
    for metric, name in METRICS.items():
        value = f"{found[metric]:,.10g}" if metric in found else "not available"
        print(f"  {name:22}{value:>14}   {metric}")
    read = ROWS * HIDDEN * 2
    print(f"  {'input, bytes':22}{read:14,}   what it has to read")


if __name__ == "__main__":
    launch() if sys.argv[1:] == ["launch"] else main()

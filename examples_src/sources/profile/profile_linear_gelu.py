"""Asks ncu what GELU costs a matrix product that has it in its epilogue."""

import sys

import ncu

ROWS, INPUTS, OUTPUTS = 32768, 4096, 4096
CALLS = ("product", "with bias", "with bias and GELU")
ROUNDS = 2  # of which the last counts
TIME = "gpu__time_duration.sum"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
COLUMNS = {
    "time, us": lambda found: f"{found[TIME] / 1e3:.0f}",
    "tensor cores, %": lambda found: f"{found[TENSOR]:.1f}",
    "instructions, M": lambda found: f"{found['sm__inst_executed.sum'] / 1e6:.0f}",
    "of these exp, M": lambda found: (
        f"{found['smsp__inst_executed_pipe_xu.sum'] / 1e6:.1f}"
    ),
}
METRICS = [TIME, TENSOR, "sm__inst_executed.sum", "smsp__inst_executed_pipe_xu.sum"]


def launch() -> None:
    """What ncu watches: the three products, a few times."""
    import torch
    import torch.nn.functional as F

    options = {"device": "cuda", "dtype": torch.bfloat16}
    x = torch.randn(ROWS, INPUTS, **options)
    w = torch.randn(OUTPUTS, INPUTS, **options) / INPUTS**0.5
    b = torch.randn(OUTPUTS, **options)
    for _ in range(ROUNDS):
        F.linear(x, w)
        F.linear(x, w, b)
        torch._addmm_activation(b, x, w.t(), use_gelu=True)
    torch.cuda.synchronize()


def main() -> None:
    """Run ncu and print a line for each product."""
    launches = ncu.counted(__file__, "nvjet|.*gemm", METRICS, ROUNDS * len(CALLS))
    found = launches[-len(CALLS) :]
    print(f"ncu --clock-control none, bf16, {ROWS} x {INPUTS} x {OUTPUTS}")
    print(f"{'':20}" + "".join(f"{name:>17}" for name in COLUMNS))
    for call, counts in zip(CALLS, found, strict=True):
        cells = (f"{show(counts):>17}" for show in COLUMNS.values())
        print(f"{call:20}" + "".join(cells))
    for call, counts in zip(CALLS, found, strict=True):
        print(f"{call}: {counts['Kernel Name']}")


if __name__ == "__main__":
    launch() if sys.argv[1:] == ["launch"] else main()

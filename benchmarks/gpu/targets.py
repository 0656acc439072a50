"""What the operators are to reach on an H100 or H200 in bf16, with nothing in a cache.

The pages on benchmarks draw these beside what was measured.
"""

# Share of the fastest copy's bandwidth, by rows x hidden.
SHARES = {
    "forward": {
        (262144, 128): 0.94,
        (32768, 1024): 0.88,
        (32768, 4096): 0.97,
        (16384, 5120): 0.94,
        (8192, 8192): 0.94,
        (4096, 16384): 0.92,
        (2048, 32768): 0.94,
        (2048, 65536): 0.94,
    },
    "backward": {
        (262144, 128): 0.80,
        (32768, 1024): 0.72,
        (32768, 4096): 0.88,
        (16384, 5120): 0.82,
        (8192, 8192): 0.80,
        (4096, 16384): 0.75,
        (2048, 32768): 0.70,
        (2048, 65536): 0.70,
    },
}
# Time over the time of another contender of the same run, by form of GELU.
RATIOS = {
    "tanh": {"addmm_activation": 1.02, "F.linear": 1.04},
    "none": {"torch.compile": 1.00},
}
# Two timings of the same function differ by this much: nobody is behind by less.
NOISE = 1.01

# Every kernel with its calls and times, to a folder of CSV files.
# Newer versions of ROCm prefer the default, a database, and `rocpd convert` to CSV.
rocprofv3 --kernel-trace --stats --output-format csv --output-directory profile -- \
    python my_script.py

# The names of the hardware's counters.
rocprofv3-avail list --pmc

# The third launch of a kernel: kilobytes read from and written to memory, and occupancy.
for counter in FETCH_SIZE WRITE_SIZE OccupancyPercent; do
  rocprofv3 --pmc $counter --kernel-include-regex rms_norm_kernel \
      --kernel-iteration-range "[3-3]" --output-format csv -- python my_script.py
done

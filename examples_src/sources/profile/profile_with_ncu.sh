# The third launch of a kernel: its time, memory, occupancy, and what its warps wait for.
ncu --kernel-name regex:rms_norm_kernel --launch-skip 2 --launch-count 1 \
    --clock-control none --section SpeedOfLight --section MemoryWorkloadAnalysis \
    --section Occupancy --section WarpStateStats python my_script.py

# Metrics by name: here the bytes read, and the waits for memory and at barriers.
waits="smsp__average_warps_issue_stalled"
ncu --kernel-name regex:rms_norm_kernel --launch-skip 2 --launch-count 1 \
    --clock-control none --metrics "dram__bytes_read.sum,\
${waits}_long_scoreboard_per_issue_active.ratio,\
${waits}_barrier_per_issue_active.ratio" python my_script.py

# Every kernel with its calls and times, to a folder of CSV files.
rocprofv3 --kernel-trace --stats --output-format csv --output-directory profile -- \
    python my_script.py

# Counters of the hardware: list them, then ask for some.
rocprofv3-avail list --pmc
rocprofv3 --pmc SQ_WAVES,SQ_INSTS_VALU --output-format csv -- python my_script.py

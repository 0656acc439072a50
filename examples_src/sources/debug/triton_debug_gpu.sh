# What device_print, a tensor of the CPU and device_assert do on a GPU.
# Each thread prints for itself, so equal lines are dropped.
debug=examples_src/sources/debug/triton_debug.py

echo '$ python triton_debug.py | sort -u'
python3 $debug | sort -u

echo '$ python triton_debug.py cpu'
python3 $debug cpu 2>&1 | tail -n 1

echo '$ python triton_debug.py large'
python3 $debug large | grep kernel:

echo '$ TRITON_DEBUG=1 python triton_debug.py large'
TRITON_DEBUG=1 python3 $debug large 2>&1 |
  grep -oE 'triton_debug.py:[0-9]+:.*Assertion.*|[A-Za-z]+Error: .*' |
  sed -E 's/(block|thread): \[[0-9, ]*\],? ?//g' | sort -u

# Build a copy of the guide's project for this GPU, run its tests, and time its operator.
set -euo pipefail
root=$PWD
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
# Python copies it, so that the recording knows what it has read.
python3 -c "import shutil as s, sys; s.copytree('starter/cpp', sys.argv[1], dirs_exist_ok=True)" "$copy"
cd "$copy"
export PYTHONPATH=$copy/src
# [steps]
python3 setup.py -q build_ext --inplace > build.log 2>&1 || { cat build.log; exit 1; }
python3 -m pytest -q -W ignore tests | tail -1
operands="8192x8192 8192x8192"
python3 "$root/starter/timing.py" starter:swiglu starter.swiglu:composite $operands None
# [/steps]

#!/bin/sh
# Has a file's errors found by g++, or by nvcc: sh compile.sh FILE [FLAGS]
set -e
file=$1 && shift
torch=$(python -c "from importlib.util import find_spec
print(*find_spec('torch').submodule_search_locations)")
folders="-isystem $torch/include -isystem $torch/include/torch/csrc/api/include"
case $file in
  *.cu) nvcc -std=c++20 -arch=sm_90 -cubin -o build/migrate/older.cubin $folders "$@" "$file" ;;
  *) g++ -std=c++20 -fsyntax-only $folders "$@" "$file" ;;
esac

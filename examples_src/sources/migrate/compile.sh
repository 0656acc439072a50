#!/bin/sh
# Has a file's errors found by g++, or by nvcc: sh compile.sh FILE [FLAGS]
set -e
file=$1 && shift
folders=$(python -c "from torch.utils.cpp_extension import include_paths
print(*(f'-isystem {folder}' for folder in include_paths()))")
case $file in
  *.cu) nvcc -std=c++20 -arch=sm_90 -cubin -o build/migrate/older.cubin $folders "$@" "$file" ;;
  *) g++ -std=c++20 -fsyntax-only $folders "$@" "$file" ;;
esac

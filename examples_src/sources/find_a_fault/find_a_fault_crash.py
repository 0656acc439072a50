"""Call the kernel with what looks like its pointers."""

import ctypes
import sys

library = ctypes.CDLL(sys.argv[1])
numbers, sums = (ctypes.c_float * 6)(), (ctypes.c_float * 2)()


def row_sums(input, output, rows, hidden):
    """Sum each row of input into output."""
    library.row_sums(ctypes.addressof(input), ctypes.addressof(output), rows, hidden)


row_sums(numbers, sums, 2, 3)

"""Call the faulty CPU kernel on two rows of 1000 elements."""

import ctypes
import sys

Row = ctypes.c_float * 1000
ctypes.CDLL(sys.argv[1]).neighbour_sum(Row(), Row(), 1000)
print("no error seen")

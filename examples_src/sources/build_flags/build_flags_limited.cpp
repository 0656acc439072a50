#include <Python.h>

// Reads a field of the tuple object, whose layout may change between Pythons.
extern "C" PyObject* first(PyObject* tuple) { return PyTuple_GET_ITEM(tuple, 0); }

// An empty Python module. Importing it loads the shared library, and loading the
// library registers its operators with PyTorch.
#include <Python.h>

PyMODINIT_FUNC PyInit__C(void) {
  static PyModuleDef_Slot slots[] = {
#if defined(Py_mod_gil)  // without it, a free-threaded Python switches its lock on
      {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
      {0, nullptr}};
  static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", nullptr, 0, nullptr, slots};
  return PyModuleDef_Init(&module);
}

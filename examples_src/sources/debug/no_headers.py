"""Compile a C module as Triton does, for a Python that has no headers."""

import sysconfig

from triton.runtime.build import compile_module_from_src

sysconfig.get_paths = lambda scheme: {"include": "/nowhere"}
compile_module_from_src("#include <Python.h>\n", "cuda_utils")

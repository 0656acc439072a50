"""Run as if the library in C++ were not built, for what needs none of it.

    python -m pytest -p no_library TEST
    python -m no_library PROGRAM [ARGUMENT ...]

A recording of it is then not outdated by an edit in csrc/.
"""

import runpy
import sys
from pathlib import Path

sys.modules["opbook._C"] = None  # to import it raises ModuleNotFoundError

if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")

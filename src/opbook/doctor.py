"""Runs ``opbook doctor``, of opbook-tools, beside a library that may not load.

The error of ``import opbook`` names this file, so it runs by its path as well as with
``python -m opbook.doctor``. In a clone, opbook-tools need not be installed.
"""

import importlib.util
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def main() -> int:
    """Find opbook-tools, and hand over."""
    if sys.path and Path(sys.path[0]).resolve() == PACKAGE:
        del sys.path[0]  # or opbook/triton would be `triton`
    tools = PACKAGE.parents[1] / "tools" / "src"
    sys.path.insert(0, str(PACKAGE.parent))  # this package, and not another copy
    sys.path.append(str(tools))
    if not importlib.util.find_spec("opbook_tools"):
        sys.exit("The doctor is a part of opbook-tools, which is not installed here.")
    from opbook_tools import cli

    return cli.main(["doctor", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())

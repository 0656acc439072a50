"""Run a gallery script for a recording, with nothing else installed.

    PYTHONPATH=docs/_ext python3 -m proof.play examples_src/60_roofline.py

What it prints is the output of the recording. Its figures go to the file that
RECORD_DATA names.
"""

import json
import os
import runpy
import sys
from pathlib import Path

from . import figures


def main(path: Path) -> int:
    """Run the script as Python does and leave its figures; return its exit status."""
    sys.argv[:], sys.path[0] = [str(path)], str(path.parent)
    os.environ["MPLBACKEND"] = "Agg"
    os.environ.pop("DISPLAY", None)  # with it, matplotlib warns that Agg shows nothing
    figures.use_style()
    status = 0
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as stop:
        status = stop.code
    if not status and (file := os.environ.get("RECORD_DATA")):
        drawn = {"figures": figures.drawn()}
        Path(file).write_text(json.dumps(drawn), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

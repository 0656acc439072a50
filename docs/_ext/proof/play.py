"""Run a gallery script or a notebook for a recording, with nothing else installed.

    PYTHONPATH=docs/_ext python3 -m proof.play examples_src/60_roofline.py

What it prints is the output of the recording. Its figures go, as data, to the file that
RECORD_DATA names.
"""

import json
import os
import runpy
import sys
import types
from pathlib import Path

from . import figures, repl


def play(path: Path) -> None:
    """Run the file as Python or Jupyter would, in this process."""
    sys.argv[:] = [str(path)]
    sys.path[0] = str(path.parent)
    if path.suffix == ".ipynb":
        play_notebook(path)
    else:
        runpy.run_path(str(path), run_name="__main__")


def play_notebook(path: Path) -> None:
    """Run the cells; print what Jupyter would show below them, as text."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    codes = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    for number, lines in enumerate(codes, 1):
        run_cell("".join(lines), f"<cell {number}>", vars(main))


def run_cell(code: str, name: str, namespace: dict) -> None:
    """Run a cell, and print the value of an expression at its end."""
    value = repl.evaluate(repl.parse(code, name), name, namespace)
    if value is not None and not code.rstrip().endswith(";"):
        print(repr(value))


def drawn() -> list[dict]:
    """The figures that are still open, for Agg shows none and closes none."""
    if not (plots := sys.modules.get("matplotlib.pyplot")):
        return []
    return [figures.read(plots.figure(number)) for number in plots.get_fignums()]


def main(path: Path) -> int:
    """Play the file and leave its figures; return its exit status."""
    os.environ["MPLBACKEND"] = "Agg"
    os.environ.pop("DISPLAY", None)  # with it, matplotlib warns that Agg shows nothing
    status = 0
    try:
        play(path)
    except SystemExit as stop:
        status = stop.code
    if not status and (file := os.environ.get("RECORD_DATA")):
        Path(file).write_text(json.dumps({"figures": drawn()}), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

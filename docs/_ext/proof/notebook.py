"""Run a notebook of tutorials/ as Jupyter does."""

from pathlib import Path

from . import blocks, process
from .evidence import Record
from .files import ROOT, relative, write_text

TUTORIALS = ROOT / "tutorials"
EXECUTED = ROOT / "build" / "proof" / "notebooks"


def notebooks() -> list[Path]:
    """The notebooks, as they are committed: with the outputs of an earlier run."""
    return sorted(TUTORIALS.glob("*.ipynb"))


def run(path: Path) -> Record:
    """Run all cells; the executed notebook is what this checkout's site shows."""
    name = relative(path)
    done = process.call(f"notebook:{name}", _execute, name, fresh=True, file=path)
    text, wrong = done.value or ("", done.error.rstrip().rpartition("\n")[2])
    if wrong:
        return done.failed(blocks.sanitise(wrong))
    write_text(EXECUTED / path.name, text)
    return done.record


def _execute(name: str) -> tuple[str, str]:
    """The notebook as it ran, and which of its cells failed, and how."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    book = nbformat.read(ROOT / name, as_version=4)
    where = {"metadata": {"path": str((ROOT / name).parent)}}
    client = NotebookClient(book, timeout=process.TIMEOUT, resources=where)
    try:
        client.execute()
    except CellExecutionError as error:
        number = client.code_cells_executed
        return "", f"code cell {number}: {error.ename}: {error.evalue}"
    return nbformat.writes(book) + "\n", ""

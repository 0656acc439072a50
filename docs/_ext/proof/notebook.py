"""Run a notebook of tutorials/ as Jupyter does."""

from pathlib import Path

from . import blocks, process
from .evidence import Record
from .files import ROOT, digests, relative, write_text

TUTORIALS = ROOT / "tutorials"
EXECUTED = ROOT / "build" / "proof" / "notebooks"


def notebooks() -> list[Path]:
    """The notebooks, as they are committed: with the outputs of an earlier run."""
    return sorted(TUTORIALS.glob("*.ipynb"))


def run(path: Path) -> Record:
    """Run all cells; the executed notebook is what this checkout's site shows."""
    name = relative(path)
    done = process.call(_execute, name, fresh=True)
    inputs = done.inputs | digests([path], text=[name])
    if done.error:
        said = blocks.sanitise(done.error)
        detail = {"reason": said.rpartition("\n")[2], "traceback": said}
        return done.record(f"notebook:{name}", "failed", inputs=inputs, detail=detail)
    write_text(EXECUTED / path.name, done.value)
    return done.record(f"notebook:{name}", inputs=inputs)


def _execute(name: str) -> str:
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(ROOT / name, as_version=4)
    where = {"metadata": {"path": str((ROOT / name).parent)}}
    NotebookClient(book, timeout=process.TIMEOUT, resources=where).execute()
    return nbformat.writes(book) + "\n"

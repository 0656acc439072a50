"""The end of a gallery page or a notebook: what the same file did on a GPU."""

import os
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

from . import machine
from .directives import recorded
from .evidence import Record, store
from .files import ROOT, write_text
from .recordings import manifest
from .units import record_of

FIGURES = ROOT / "build" / "proof" / "figures"


def what(docname: str) -> set[str]:
    """The recording of the script or notebook that a page was made from, if any.

    Returns:
        Nothing also where there is a GPU: the page itself is its result.
    """
    if machine.gpus():
        return set()
    name = record_of(docname).partition(":")[2]
    return {f"gpu:{key}" for key, entry in manifest().items() if entry.plays == name}


class Section(SphinxTransform):
    """Append the section with the recorded output and the recorded figures."""

    default_priority = 700

    def apply(self, **kwargs) -> None:
        docname = self.env.docname
        page = next(iter(self.document.findall(nodes.section)), None)
        records = list(filter(None, map(store().kept, what(docname))))
        if page is None or not records:
            return
        page += section(records[0], Path(self.env.doc2path(docname)))
        # The downloads stay the last, and `only` has the id of a link to them.
        for footer in list(self.document.findall(_is_footer)):
            footer.parent.remove(footer)
            page += footer


def _is_footer(node) -> bool:
    is_only = isinstance(node, addnodes.only)
    return is_only and any("sphx-glr-footer" in child["classes"] for child in node)


def section(record: Record, page: Path) -> nodes.section:
    """Title, versions, command with output, figures."""
    device = record.detail["device"]
    title = f"On {device}" if device[0].isdigit() else f"On an {device}"
    shown = nodes.section(ids=[nodes.make_id(title)], names=[title.lower()])
    shown += nodes.title(title, title)
    how = "proof.play runs it as Python does, and keeps its figures"
    words = f"This file, run with {versions(record.machine)}; {how}:"
    shown += nodes.paragraph(words, words)
    shown.extend(recorded(record))
    name = record.what.partition(":")[2]
    figures = record.detail.get("data", {}).get("figures", ())
    for number, drawn in enumerate(figures):
        file = FIGURES / f"{name}-{number}.svg"
        write_text(file, "\n".join(drawn["svg"]) + "\n")
        shown += figure(file, page, f"{drawn['alt']}, on {device}")
    return shown


def versions(machine: dict[str, str]) -> str:
    """What the recording ran with, in words."""
    names = {"torch": "PyTorch", "cuda": "CUDA", "triton": "Triton", "driver": "driver"}
    parts = [
        f"{word} {machine[key]}" for key, word in names.items() if machine.get(key)
    ]
    return ", ".join(parts) or "versions that were not recorded"


def figure(file: Path, page: Path, alt: str) -> nodes.figure:
    """The drawing, and where it is from."""
    address = Path(os.path.relpath(file, page.parent)).as_posix()
    words = "Drawn by the recorded run."
    image = nodes.image(uri=address, alt=alt)
    shown = nodes.figure("", image, nodes.caption(words, words), align="center")
    shown["ids"].append(nodes.make_id(file.stem))
    return shown

"""The end of a gallery page or a notebook: what the same file did on a GPU."""

import importlib.util
import json
import os
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

from . import evidence, figures, gallery, record
from .directives import recorded

FIGURES = evidence.EVIDENCE / "figures"


def original(path: Path) -> Path:
    """The notebook that was copied into docs/tutorials."""
    source = evidence.ROOT / "tutorials" / path.name
    return source if source.is_file() else path


def entry_of(app, docname: str) -> record.Entry | None:
    """The recording of the script or notebook that a page was made from.

    Returns:
        None also where there is a GPU: the page itself is its result.
    """
    if evidence.environment()["gpu"]:
        return None
    path = gallery.source_of(app, docname) or original(Path(app.env.doc2path(docname)))
    name = evidence.relative(path)
    found = [e for e in record.manifest().values() if e.plays and e.plays == name]
    return found[0] if found and found[0].file.exists() else None


def has_come(app, docname: str, claims: list[dict]) -> bool:
    """Whether there is a recording now that the page as it was read does not show."""
    entry = entry_of(app, docname)
    return bool(entry) and entry.name not in {claim.get("name") for claim in claims}


class Section(SphinxTransform):
    """Append the section with the recorded output and the recorded figures."""

    default_priority = 700

    def apply(self, **kwargs) -> None:
        docname = self.env.docname
        page = next(iter(self.document.findall(nodes.section)), None)
        if page is None or not (entry := entry_of(self.app, docname)):
            return
        self.env.note_dependency(str(entry.file))
        recording = json.loads(entry.file.read_text(encoding="utf-8"))
        page += section(entry.name, recording, Path(self.env.doc2path(docname)))
        # The downloads stay the last, and `only` has the id of a link to them.
        for footer in list(self.document.findall(_is_footer)):
            footer.parent.remove(footer)
            page += footer


def _is_footer(node) -> bool:
    is_only = isinstance(node, addnodes.only)
    return is_only and any("sphx-glr-footer" in child["classes"] for child in node)


def section(name: str, recording: dict, page: Path) -> nodes.section:
    """Title, versions, command with output, figures."""
    device = recording["device"]
    title = f"On {device}" if device[0].isdigit() else f"On an {device}"
    shown = nodes.section(ids=[nodes.make_id(title)], names=[title.lower()])
    shown += nodes.title(title, title)
    how = "proof.play runs it as Python does, and keeps its figures"
    words = f"This file, run with {versions(recording)}; {how}:"
    shown += nodes.paragraph(words, words)
    shown.extend(recorded(name, recording))
    if importlib.util.find_spec("matplotlib"):
        drawn = (recording.get("data") or {}).get("figures", [])
        for number, data in enumerate(drawn):
            file = FIGURES / f"{name}-{number}.svg"
            figures.draw(data, file)
            shown += figure(file, page, description(data, device))
    return shown


def versions(recording: dict) -> str:
    """What the recording ran with, in words."""
    names = {"torch": "PyTorch", "cuda": "CUDA", "triton": "Triton"}
    known = {**recording.get("versions", {})}
    parts = [f"{word} {known[key]}" for key, word in names.items() if known.get(key)]
    if recording.get("driver"):
        parts.append(f"driver {recording['driver']}")
    return ", ".join(parts) or "versions that were not recorded"


def figure(file: Path, page: Path, alt: str) -> nodes.figure:
    """The drawing, and where its data is from."""
    address = Path(os.path.relpath(file, page.parent)).as_posix()
    words = "Drawn by this build, from the data of the recording."
    image = nodes.image(uri=address, alt=alt)
    shown = nodes.figure("", image, nodes.caption(words, words), align="center")
    shown["ids"].append(nodes.make_id(file.stem))
    return shown


def description(data: dict, device: str) -> str:
    """What the drawing shows, for those who do not see it."""
    axes = [part for part in data["axes"] if part["visible"]] or data["axes"]
    labels = [text for part in axes for text in _labels(part) if text]
    return f"{'; '.join(dict.fromkeys(labels)) or 'Chart'}, on {device}"


def _labels(axes: dict) -> list[str]:
    named = [part["label"] for part in (*axes["lines"], *axes["bars"])]
    return [axes["title"], axes["x"]["label"], axes["y"]["label"], *named]

"""sphinx-gallery: it runs each script in a process of its own, and shows the record.

What has no public hook is replaced: `execute_script`, to give what the store has, for a
build of the site runs nothing, and `_thumbnail_div` with the two lines around its
thumbnails, to make cards of sphinx-design.
"""

import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from . import blocks, figures, page, process
from .evidence import Record, store
from .files import ROOT, pinned, relative

SKIPPED = 77  # the exit status of a script that lacks a tool; its last line says which
SCRIPTS = ROOT / "examples_src"
CARDS = "\n.. grid:: 1 2 3 3\n   :gutter: 3\n   :class-container: cards\n"
CARD = """
   .. grid-item-card:: {title}
      :link: /{page}
      :link-type: doc
      :img-top: /_static/gallery/{name}.svg

      {sentence}
"""


def scripts() -> list[Path]:
    """The scripts of the gallery; others of its folder serve them."""
    found = sorted(SCRIPTS.glob("*.py")) + sorted(SCRIPTS.glob("benchmarks/*.py"))
    return [path for path in found if re.match(r"\d\d_", path.name)]


# Running a script.


def run(path: Path) -> Record:
    """Run a script by sphinx-gallery, and return the record with what it showed."""
    name = relative(path)
    fresh = page.starts_fresh(path)
    done = process.call(f"script:{name}", _execute, name, fresh=fresh, file=path)
    if done.error:
        return done.failed(done.error)
    outputs, drawn, lacks, wrong = done.value
    if wrong:
        return done.failed(wrong)
    record = done.record
    record.inputs = pinned(record.inputs, "".join(outputs))
    record.outputs = [page.Result(text=text) for text in outputs]
    record.detail |= {"figures": drawn} if drawn else {}
    if lacks:
        record.kind, record.detail["reason"] = "not_run", lacks
    return record


def _execute(name: str) -> tuple[list[str], dict[str, list[str]], str, str]:
    """What the blocks showed, the drawings, why it did not run, why it failed."""
    from sphinx_gallery import gen_gallery, gen_rst

    source = ROOT / name
    figures.use_style()
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder, "examples", *source.parent.relative_to(SCRIPTS).parts)
        images = images / "images"
        images.mkdir(parents=True)
        settings = {"image_scrapers": (_scrape,), "show_memory": False}
        conf = gen_gallery._fill_gallery_conf_defaults(settings)
        conf["src_dir"] = folder
        variables = {
            "execute_script": True,
            "src_file": str(source),
            "target_file": str(Path(folder, source.name)),
            "image_path_iterator": gen_rst.ImagePathIterator(
                f"{images}/sphx_glr_{source.stem}_{{0:03}}.png"
            ),
        }
        Path(variables["target_file"]).write_bytes(source.read_bytes())
        parser, _ = gen_rst._get_parser(source.name, conf)
        file_conf, parts = parser.split_code_and_text_blocks(str(source))
        try:
            outputs, _ = gen_rst.execute_script(parts, variables, conf, file_conf)
        except SystemExit as stop:
            if stop.code != SKIPPED:
                raise
            return [], {}, _what_it_lacks(source), ""
        outputs = [blocks.sanitise(text) for text in outputs]
        files = sorted(images.glob("*.svg"))
        drawn = {file.name: file.read_text().splitlines() for file in files}
        return outputs, drawn, "", variables.get("formatted_exception", "")


def _scrape(block, variables, conf) -> str:
    """sphinx-gallery's hook for images: the open figures of matplotlib."""
    from sphinx_gallery.scrapers import figure_rst

    shown = ""
    for figure in figures.drawn():
        path = Path(next(variables["image_path_iterator"])).with_suffix(".svg")
        path.write_text(figure["svg"], encoding="utf-8")
        shown += figure_rst([str(path)], conf["src_dir"], figure["alt"])
    return shown


def _what_it_lacks(script: Path) -> str:
    sys.stdout = sys.__stdout__
    command = [sys.executable, str(script)]
    said = subprocess.run(command, capture_output=True, text=True).stdout
    return said.strip().rpartition("\n")[2] or "a tool is missing"


# Showing it.


def replace(app) -> None:
    """Replace sphinx-gallery's functions, where it is used."""
    if "sphinx_gallery.gen_gallery" not in app.extensions:
        return
    from sphinx_gallery import directives, gen_rst

    gen_rst.execute_script = _replay
    if "sphinx_design" in app.extensions:
        for user in (gen_rst, directives):  # the gallery, and `minigallery` on a page
            user.THUMBNAIL_PARENT_DIV, user.THUMBNAIL_PARENT_DIV_CLOSE = CARDS, "\n"
            user._thumbnail_div = card


def _replay(script_blocks, script_vars, gallery_conf, file_conf):
    """What the blocks of a script showed when it ran, and its drawings."""
    script_vars |= {"memory_delta": 0.0, "example_globals": {}, "fake_main": sys}
    source = Path(script_vars["src_file"])
    record = store().best(f"script:{relative(source)}")
    shown = [output.text for output in record.outputs] if record else []
    if len(shown) != len(script_blocks):  # the script has changed since
        return [""] * len(script_blocks), 0.0
    images = Path(script_vars["target_file"]).parent / "images"
    for name, lines in record.detail.get("figures", {}).items():
        (images / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [f"{text}\n\n" if text else "" for text in shown], 0.0


def card(target_dir, src_dir, fname, intro: str, title: str, **_) -> str:
    """The drawing, title and first sentence of a script, as a link to its page."""
    page = Path(target_dir, fname).relative_to(src_dir).with_suffix("")
    sentence = re.match(r".+?[.?](?= |$)|.+", intro)[0]
    return CARD.format(title=title, page=page, name=page.name, sentence=sentence)


def source_of(docname: str) -> Path | None:
    """The script that a page of the gallery was made from."""
    script = SCRIPTS / f"{docname.removeprefix('examples/')}.py"
    return script if docname.startswith("examples/") and script.is_file() else None


@cache
def code_lines(script: Path) -> set[str]:
    """The lines of a script that run: a block pasted into its prose is none of them."""
    from sphinx_gallery.py_source_parser import split_code_and_text_blocks

    _, parts = split_code_and_text_blocks(str(script))
    code = [part.content for part in parts if part.type == "code"]
    return {line.strip() for text in code for line in text.splitlines()}

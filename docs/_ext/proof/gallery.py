"""sphinx-gallery, with each script in a process of its own and a record of its run."""

import os
import re
import subprocess
import sys
from pathlib import Path

from sphinx.errors import ExtensionError

from . import page, run
from .evidence import digests, pinned, relative, store

CARDS = "\n.. grid:: 1 2 3 3\n   :gutter: 3\n   :class-container: cards\n"
CARD = """
   .. grid-item-card:: {title}
      :link: /{page}
      :link-type: doc
      :img-top: /_static/gallery/{name}.svg

      {sentence}
"""


def card(target_dir, src_dir, fname, intro: str, title: str, **_) -> str:
    """The drawing, title and first sentence of a script, as a link to its page."""
    page = Path(target_dir, fname).relative_to(src_dir).with_suffix("")
    sentence = re.match(r".+?[.?](?= |$)|.+", intro)[0]
    return CARD.format(title=title, page=page, name=page.name, sentence=sentence)


def isolate(app) -> None:
    """Replace sphinx-gallery's functions for scripts and cards, where it is used."""
    if "sphinx_gallery.gen_gallery" not in app.extensions:
        return
    from sphinx_gallery import gen_rst

    if "sphinx_design" in app.extensions:
        gen_rst.THUMBNAIL_PARENT_DIV, gen_rst.THUMBNAIL_PARENT_DIV_CLOSE = CARDS, "\n"
        gen_rst._thumbnail_div = card
    original = getattr(gen_rst.generate_file_rst, "original", gen_rst.generate_file_rst)

    def generate(fname, target_dir, src_dir, gallery_conf):
        source = Path(src_dir, fname)
        if not gen_rst.executable_script(str(source), gallery_conf):
            return original(fname, target_dir, src_dir, gallery_conf)
        cached = Path(target_dir, f"{fname}.md5")
        what = f"script:{relative(source)}"
        record = store().get(what)
        if record and record.kind == "not_run":
            conf = gallery_conf | {"plot_gallery": False}
            return original(fname, target_dir, src_dir, conf)
        if record and cached.exists():
            return original(fname, target_dir, src_dir, gallery_conf)
        cached.unlink(missing_ok=True)
        arguments = (fname, target_dir, src_dir, gallery_conf)
        done = run.call(_generate, *arguments, fresh=page.starts_fresh(source))
        if done.error:
            raise ExtensionError(f"{relative(source)}: {done.error}")
        result, reason = done.value
        # The comments of a script are the text of its page.
        inputs = done.inputs | digests([source], text=[relative(source)])
        inputs = pinned(inputs, cached.with_suffix("").with_suffix(".rst").read_text())
        if reason:
            detail = {"reason": reason}
            store().save(done.record("not_run", what, inputs=inputs, detail=detail))
        elif result[3].get("passing"):
            store().save(done.record("ran", what, inputs=inputs))
        else:
            store().drop(what)
        return result

    generate.original = original
    gen_rst.generate_file_rst = generate


def _generate(fname, target_dir, src_dir, gallery_conf):
    """Run a script and write its page; if it lacks a tool, write the page without.

    A script says so with exit status 77 and the reason in the last line it prints.
    """
    from sphinx_gallery import gen_rst

    try:
        return gen_rst.generate_file_rst(fname, target_dir, src_dir, gallery_conf), ""
    except SystemExit as stop:
        if stop.code != 77:
            raise
    os.chdir(src_dir)
    sys.stdout = sys.__stdout__
    again = [sys.executable, os.path.join(src_dir, fname)]
    said = subprocess.run(again, capture_output=True, text=True, check=False).stdout
    reason = said.strip().rpartition("\n")[2] or "a tool is missing"
    conf = gallery_conf | {"plot_gallery": False}
    return gen_rst.generate_file_rst(fname, target_dir, src_dir, conf), reason


def source_of(app, docname: str) -> Path | None:
    """The script that a page of the gallery was made from."""
    conf = getattr(app.config, "sphinx_gallery_conf", None) or {}
    sources, targets = conf.get("examples_dirs", []), conf.get("gallery_dirs", [])
    pairs = zip(_listed(sources), _listed(targets), strict=False)
    for examples, gallery in pairs:
        if docname.startswith(f"{gallery}/"):
            inner = docname.removeprefix(f"{gallery}/")
            script = Path(app.srcdir, examples, f"{inner}.py").resolve()
            return script if script.is_file() else None
    return None


def _listed(value) -> list:
    return list(value) if isinstance(value, list | tuple) else [value]


def code_lines(script: Path) -> set[str]:
    """The lines of a script that run: a block pasted into its prose is none of them."""
    from sphinx_gallery.py_source_parser import split_code_and_text_blocks

    _, blocks = split_code_and_text_blocks(str(script))
    code = [block.content for block in blocks if block.type == "code"]
    return {line.strip() for text in code for line in text.splitlines()}

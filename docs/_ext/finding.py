"""Beside the pages: the data of the search, and llms.txt for readers that are programs.

The search is ``_static/search.js``. Words that a page is looked for by, and that it
does not use itself, are in ``synonyms.toml``.
"""

import json
import re
from pathlib import Path

from sphinx.util import logging

import page_text
from proof.files import read_toml, write_text

logger = logging.getLogger(__name__)

HOW = """
To make an operator of your own, unpack [starter.zip]({base}starter.zip), and run
`new.py` as [Your own operator next]({base}guide/8_your_own.html) says. The text of all
pages is [llms-full.txt]({base}llms-full.txt), where each page begins with its address
in a comment: `<!-- {base}guide/8_your_own.html -->`."""


def prepare(app) -> None:
    """Leave out Sphinx's own search: it wants every word of a query on a page."""
    app.builder.search = False


def write(app, exception) -> None:
    """Write the three files when the pages are there."""
    if exception or app.builder.name != "html":
        return
    pages = page_text.pages(app)
    found = {name: list(page_text.places(p.markdown)) for name, p in pages.items()}
    about = {name: page.description for name, page in pages.items()}
    data = search_data(app, found, about)
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    # A script, since a page that is opened as a file may not read other files.
    write_text(Path(app.outdir, "search_data.js"), f"SEARCH_DATA = {text}\n")
    write_text(Path(app.outdir, "llms.txt"), overview(app, about))
    parts = (
        f"<!-- {app.config.html_baseurl}{app.builder.get_target_uri(name)} -->\n\n"
        + page_text.without_marks(page.markdown)
        for name, page in pages.items()
    )
    write_text(Path(app.outdir, "llms-full.txt"), "\n".join(parts))


def search_data(app, found: dict, about: dict) -> dict:
    """Pages, their places, and the words of ``synonyms.toml`` with their pages."""
    table = read_toml(Path(app.srcdir, "synonyms.toml"))
    numbers = {name: number for number, name in enumerate(found)}
    for name in table.keys() - numbers.keys():
        logger.warning("synonyms.toml: there is no page %s", name, type="finding")
    pages = [
        [app.builder.get_target_uri(name), app.env.titles[name].astext(), about[name]]
        for name in found
    ]
    # Of a page with `nosearch` in its front matter, the title and what follows it.
    places = [
        [numbers[name], *place]
        for name, places in found.items()
        for place in (places[:1] if "nosearch" in app.env.metadata[name] else places)
    ]
    synonyms = [
        [numbers[name], words]
        for name, text in table.items()
        for words in re.split(r"\s*[,\n]\s*", text.strip(", \n"))
    ]
    return {"pages": pages, "places": places, "synonyms": synonyms}


def overview(app, about: dict[str, str]) -> str:
    """``llms.txt``: title, address and description of each page, by chapter."""
    root, base = app.config.root_doc, app.config.html_baseurl
    lines = [f"# {app.config.project}\n\n> {about[root]}", HOW.format(base=base)]
    chapters = app.env.toctree_includes.get(root, [])
    for chapter in chapters:
        lines.append(f"\n## {app.env.titles[chapter].astext()}\n")
        for name in page_text.contents(app.env, chapter):
            address = base + app.builder.get_target_uri(name)
            title = app.env.titles[name].astext()
            lines.append(f"- [{title}]({address}): {about[name]}".rstrip(": "))
    return "\n".join(lines) + "\n"


def setup(app):
    app.connect("builder-inited", prepare)
    app.connect("build-finished", write)

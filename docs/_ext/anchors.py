"""Warn of each link to a page, a file or a place of the site that is not there.

Sphinx checks the references that it resolves. A link that an extension wrote, or an id
that another extension dropped, shows only in the finished pages.
"""

import re
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from sphinx.util import logging

logger = logging.getLogger(__name__)

# Sphinx escapes the quotes of text, so that a match is an attribute.
ATTRIBUTE = re.compile(r'\s(id|href|src)="([^"]*)"')


def check(app, exception) -> None:
    """Read all pages at each build: an edit of one breaks the links of another."""
    if exception or app.builder.name != "html":
        return
    pages = {}
    for name in sorted(app.env.found_docs):
        html = Path(app.builder.get_outfilename(name)).read_text(encoding="utf-8")
        pages[f"/{app.builder.get_target_uri(name)}"] = name, ATTRIBUTE.findall(html)
    ids = {
        unquote(address): {unescape(value) for key, value in found if key == "id"}
        for address, (_, found) in pages.items()
    }
    for here, (name, found) in pages.items():
        for link in sorted({value for key, value in found if key != "id"}):
            target = urlsplit(urljoin(here, unescape(link)))
            if not (target.scheme or target.netloc) and not _exists(app, target, ids):
                logger.warning("nothing is at %s", link, location=name, type="anchors")


def _exists(app, target, ids: dict[str, set[str]]) -> bool:
    path = unquote(target.path)
    if path in ids:
        return not target.fragment or unquote(target.fragment) in ids[path]
    return Path(app.outdir, path.lstrip("/")).is_file()


def setup(app):
    # After the extensions that copy files then, at the default priority of 500.
    app.connect("build-finished", check, priority=900)

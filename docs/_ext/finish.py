"""The last touch to a page: its description, and no header cell without a text."""

import re
import textwrap
from html import escape, unescape

from docutils import nodes

BEFORE, AFTER = '<meta name="description" content="', '" />'


def finish(app, pagename, templatename, context, doctree) -> None:
    """Describe the page by its first paragraph; make empty headers common cells."""
    if "body" in context:
        empty = r'<th(?: class="[^"]*")?>(?:<p></p>)?</th>'
        context["body"] = re.sub(empty, "<td></td>", context["body"])
    if doctree and (text := first_paragraph(doctree)):
        text = escape(textwrap.shorten(text, 200, placeholder=" …"))
        context["metatags"] += f"\n{BEFORE}{text}{AFTER}"


def first_paragraph(doctree: nodes.document) -> str:
    """The text of the first paragraph that stands directly in a section."""
    for paragraph in doctree.findall(nodes.paragraph):
        is_text = isinstance(paragraph.parent, nodes.section)
        if is_text and "proof" not in paragraph["classes"]:
            return " ".join(paragraph.astext().split())
    return ""


def description(html: str) -> str:
    """What `finish` has written into a page."""
    return unescape(html.partition(BEFORE)[2].partition(AFTER)[0])


def setup(app):
    app.connect("html-page-context", finish)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

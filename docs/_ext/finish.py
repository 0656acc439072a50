"""The last touch to a page: its description, whole numbers, no empty header cell."""

import re
import textwrap
from html import escape, unescape

from docutils import nodes

# A block of code or a tag, which stays as it is, or a number with a hyphen.
_POWER = re.compile(r"(<pre.*?</pre>|<[^>]*>)|(?<![\w.-])([\d.]+e-\d+)\b", re.DOTALL)
BEFORE, AFTER = '<meta name="description" content="', '" />'


def finish(app, pagename, templatename, context, doctree) -> None:
    """Describe the page by its first paragraph; mend what Sphinx makes of the rest."""
    if "body" in context:
        empty = r'<th(?: (?:class|scope)="[^"]*")*>(?:<p></p>)?</th>'
        context["body"] = whole_numbers(re.sub(empty, "<td></td>", context["body"]))
    if doctree and (text := first_paragraph(doctree)):
        text = escape(textwrap.shorten(text, 200, placeholder=" …"))
        context["metatags"] += f"\n{BEFORE}{text}{AFTER}"


def whole_numbers(html: str) -> str:
    """Keep each number such as 1e-7, where it is no code in a block, on one line."""

    def mend(found: re.Match) -> str:
        return found[1] or f'<span class="number">{found[2]}</span>'

    return _POWER.sub(mend, html)


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

"""The built pages as Markdown: what the search looks in, and what programs read.

Made from the HTML, so that a page has what it includes, what its blocks printed, and
its tables.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urljoin

from bs4 import BeautifulSoup, Comment, NavigableString  # the theme needs it too

import finish
from proof.files import read_json, write_json

SKIPPED = {"button", "form", "nav", "noscript", "script", "style", "svg"}
# Signs of links, tables of thousands of rows that other files have, programs that
# repeat the page, and a line that nobody searches for.
SKIPPED_CLASSES = {"headerlink", "program", "proof-blocks", "stands-on"}
SKIPPED_CLASSES |= {"sphx-glr-download-link-note", "sphx-glr-footer"}
BLOCKS = {"p", "div", "dl", "dd", "ul", "ol", "table", "details", "figure", "caption"}
MARKS = {"code": "`", "strong": "**", "em": "*", "summary": "**"}
PLACES = {"section", "dt", "tr"}  # where a link can lead to, if they have an id
MARK = "\0"  # on both sides of the id where a place begins


class Page(NamedTuple):
    """What the head of a page says of it, and its article."""

    description: str
    markdown: str  # with the marks of places


class Place(NamedTuple):
    """A part of a page with an address of its own. The first place is the title's."""

    anchor: str
    heading: str
    text: str


def pages(app) -> dict[str, Page]:
    """Each page in the order of the contents.

    A page is read again when its HTML, or this file, has changed.
    """
    cache = Path(app.doctreedir, "page_text.json")
    known, now = read_json(cache, {}), {}
    code = Path(__file__).read_bytes()
    for name in contents(app.env, app.config.root_doc):
        html = Path(app.builder.get_outfilename(name)).read_bytes()
        digest = hashlib.sha256(code + html).hexdigest()
        now[name] = known.get(name, [""])
        if now[name][0] != digest:
            text, address = html.decode(), app.builder.get_target_uri(name)
            made = finish.description(text), to_markdown(text, address)
            now[name] = [digest, *made]
    if now != known:
        write_json(cache, now)
    return {name: Page(*page) for name, (_, *page) in now.items()}


def contents(env, name: str) -> Iterator[str]:
    yield name
    for child in env.toctree_includes.get(name, ()):
        yield from contents(env, child)


def to_markdown(html: str, page: str) -> str:
    """The article of a page; its links lead from the root of the site."""
    article = html[html.find("<article") : html.rfind("</article>")]
    article = re.sub('<span class="section-number">.*?</span>', "", article)
    # Most of a page is spans that colour its code.
    article = re.sub(r"</?span\b[^>]*>", "", article)
    text = _markdown(BeautifulSoup(article, "html.parser"), page)
    return one_blank_line(text) + "\n"


def one_blank_line(text: str) -> str:
    """The text with one blank line where there were more."""
    return re.sub(r"[ \n]*\n[ \n]*\n", "\n\n", text).strip()


def _markdown(node, page: str) -> str:
    if isinstance(node, NavigableString):
        return "" if isinstance(node, Comment) else re.sub(r"\s+", " ", node)
    tag = node.name
    if tag in SKIPPED or SKIPPED_CLASSES.intersection(node.get("class", [])):
        return ""
    if tag == "math":
        return f"${node.get('alttext', '')}$"
    if tag == "pre":
        outer = node.find_parent("div", class_="notranslate") or {"class": []}
        language = re.search(r"highlight-(\w+)", " ".join(outer["class"]))
        text = node.get_text().rstrip()
        return f"\n\n```{language[1] if language else ''}\n{text}\n```\n\n"
    if tag == "img":
        source = node["src"]
        local = not source.startswith("data:")
        return f"![{node.get('alt', '')}]({urljoin(page, source)})" if local else ""
    inner = "".join(_markdown(child, page) for child in node.children)
    if re.fullmatch("h[1-6]", tag):
        inner = f"\n\n{'#' * int(tag[1])} {inner.strip()}\n\n"
    elif tag == "dt":
        inner = f"\n\n**{inner.strip()}**\n\n"
    elif tag == "li":
        inner = "\n- " + inner.strip().replace("\n", "\n  ")
    elif tag in {"td", "th"}:
        inner = f"| {inner.strip()} "
    elif tag == "tr":
        line = "| --- " * len(node.find_all("th")) + "|\n"
        inner += "|\n" + (line if node.parent.name == "thead" else "")
    elif tag == "a" and node.get("href") and inner.strip():
        inner = f"[{inner.strip()}]({urljoin(page, node['href'])})"
    elif tag in MARKS and inner.strip():
        inner = f"{MARKS[tag]}{inner.strip()}{MARKS[tag]}"
    if "admonition" in node.get("class", []):
        inner = "> " + one_blank_line(inner).replace("\n", "\n> ")
    if tag in BLOCKS:
        inner = f"\n\n{inner.strip()}\n\n"
    if tag in PLACES and node.get("id"):
        inner = f"{MARK}{node['id']}{MARK}{inner}"
    return inner


def without_marks(markdown: str) -> str:
    """The Markdown of a page, without the marks of places."""
    return re.sub(rf" *{MARK}.*?{MARK}\s*", "", markdown)


def places(markdown: str) -> Iterator[Place]:
    """The places of a page; the text of each ends where the next one begins."""
    _, *parts = re.split(f"{MARK}(.*?){MARK}", markdown)
    for anchor, part in zip(parts[::2], parts[1::2], strict=True):
        words = plain(part)
        start = part.strip()
        first = start[1:].split(" |", 1)[0] if start.startswith("|") else start
        heading = plain(first.partition("\n")[0])
        yield Place(anchor, heading, words.removeprefix(heading).strip())


def plain(markdown: str) -> str:
    """The words, without the signs of Markdown."""
    text = re.sub(r"!?\[([^]]*)\]\([^)\s]*\)", r"\1", markdown)
    text = re.sub(
        r"^```\w*$|^ *(#+|-|>) |^[| -]+$|^Origin: .*$", "", text, flags=re.MULTILINE
    )
    return " ".join(re.sub(r"[`*]|(^|\s)\|(?=\s)", " ", text).split())

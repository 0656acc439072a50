"""Which page teaches which topic: the coverage page and build/html/coverage.json.

A page of Markdown names its topics in its front matter, ``topics: [1, 4]``; a notebook
in its metadata; a gallery script by the directive ``.. topics:: 25 26``.
"""

import re
from html import escape
from itertools import groupby
from pathlib import Path

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from proof import tables
from proof.files import read_toml, write_json

PROVEN = ("ran", "compiled", "fails", "recorded")
logger = logging.getLogger(__name__)


class Topics(SphinxDirective):
    """``.. topics:: 25 26``: show nothing; a script has no front matter."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        self.env.metadata[self.env.docname]["topics"] = self.arguments[0]
        return []


def topics_of(app) -> dict[str, dict]:
    """The topics of topics.toml by number; ``code`` matches what shows a topic."""
    return {
        number: {"area": area, "title": title, "code": code}
        for area, topics in read_toml(Path(app.srcdir, "topics.toml")).items()
        for number, (title, code) in topics.items()
    }


def find_blocks(app, doctree) -> None:
    """Note which blocks of a page show the topics that it names."""
    env = app.env
    numbers = re.findall(r"\d+", str(env.metadata[env.docname].get("topics", "")))
    if not numbers:
        return
    env.note_dependency(str(Path(app.srcdir, "topics.toml")))
    topics, found = topics_of(app), {}
    blocks = [node for node in doctree.findall(nodes.Element) if "proof" in node]
    for number in numbers:
        if number not in topics:
            logger.warning("there is no topic %s", number, location=env.docname)
            continue
        code = re.compile(topics[number]["code"])
        found[number] = [b["proof"] for b in blocks if code.search(b.astext())]
        if not found[number]:
            words = "no block shows topic %s: none has %s"
            logger.warning(words, number, code.pattern, location=env.docname)
    env.metadata[env.docname]["blocks_of_topics"] = found


def collect(app) -> dict[str, dict]:
    """Every topic with the blocks that prove it, by page."""
    table = {number: topic | {"pages": {}} for number, topic in topics_of(app).items()}
    for docname, known in sorted(app.env.metadata.items()):
        for number, blocks in known.get("blocks_of_topics", {}).items():
            claims = known["claims"]
            proven = [b for b in blocks if claims[b]["origin"].kind in PROVEN]
            if proven:
                table[number]["pages"][docname] = proven[0]
    return table


def _html(app, here: str) -> str:
    """A table for each area; write coverage.json."""
    table = collect(app)
    data = {
        number: {"title": topic["title"], "pages": list(topic["pages"])}
        for number, topic in table.items()
    }
    write_json(Path(app.outdir, "coverage.json"), {"topics": data})
    done = sum(bool(topic["pages"]) for topic in table.values())
    parts = [
        f"<p>{done} of {len(table)} topics are shown by a block that "
        "ran or was compiled here, or that is recorded from a GPU. "
        f"The same list for programs: {tables.file_link(here, 'coverage.json')}.</p>"
    ]
    for area, topics in groupby(table.items(), lambda item: item[1]["area"]):
        rows = "".join(_row(app, here, number, topic) for number, topic in topics)
        caption = f"<caption>{escape(area)}</caption>"
        head = ("topic", "taught on")
        parts.append(tables.table(head, rows, caption=caption))
    return "\n".join(parts)


def _row(app, here: str, number: str, topic: dict) -> str:
    links = ", ".join(
        tables.link(app, here, page, app.env.titles[page].astext(), f"block-{block}")
        for page, block in topic["pages"].items()
    )
    title = f"{number}. {escape(topic['title'])}"
    return tables.row([links or "–"], title, f' id="topic-{number}"')


def setup(app):
    app.add_directive("topics", Topics)
    app.connect("doctree-read", find_blocks, priority=600)  # they have their numbers
    tables.add(app, "topic-coverage", _html)

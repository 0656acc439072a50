"""Which page teaches which topic: the coverage page and build/html/coverage.json.

A page of Markdown names its topics in its front matter, ``topics: [1, 4]``; a notebook
in its metadata; a gallery script by the directive ``.. topics:: 25 26``.
"""

import re
import tomllib
from html import escape
from itertools import groupby
from pathlib import Path

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from proof import tables
from proof.files import write_json

PROVEN = ("ran", "compiled", "fails", "recorded")
logger = logging.getLogger(__name__)


class Topics(SphinxDirective):
    """``.. topics:: 25 26``: show nothing; a script has no front matter."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        self.env.metadata[self.env.docname]["topics"] = self.arguments[0]
        return []


def prepare(app) -> None:
    if not hasattr(app.env, "blocks_of_topics"):
        app.env.blocks_of_topics = {}


def purge(app, env, docname) -> None:
    env.blocks_of_topics.pop(docname, None)


def topics_of(app) -> dict[str, dict]:
    """The topics of topics.toml by number; ``code`` matches what shows a topic."""
    text = Path(app.srcdir, "topics.toml").read_text(encoding="utf-8")
    return {
        number: {"area": area, "title": title, "code": code}
        for area, topics in tomllib.loads(text).items()
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
    env.blocks_of_topics[env.docname] = found


def collect(app, env) -> dict[str, dict]:
    """Every topic with the blocks that prove it, by page; write coverage.json."""
    table = {number: topic | {"pages": {}} for number, topic in topics_of(app).items()}
    for docname, found in sorted(env.blocks_of_topics.items()):
        origins = env.proof["origins"].get(docname, [])
        for number, blocks in found.items():
            proven = [block for block in blocks if origins[block].kind in PROVEN]
            if proven:
                table[number]["pages"][docname] = proven[0]
    data = {
        number: {"title": topic["title"], "pages": list(topic["pages"])}
        for number, topic in table.items()
    }
    write_json(Path(app.outdir, "coverage.json"), {"topics": data})
    return table


def _html(app, here: str, table: dict[str, dict]) -> str:
    done = sum(bool(topic["pages"]) for topic in table.values())
    json = "../" * here.count("/") + "coverage.json"
    parts = [
        f"<p>{done} of {len(table)} topics are shown by a block that "
        "ran or was compiled here, or that is recorded from a GPU. "
        f'The same list for programs: <a href="{json}">coverage.json</a>.</p>'
    ]
    for area, topics in groupby(table.items(), lambda item: item[1]["area"]):
        rows = "".join(_row(app, here, number, topic) for number, topic in topics)
        parts.append(
            '<div class="pst-scrollable-table-container"><table class="table">'
            f"<caption>{escape(area)}</caption>"
            '<thead><tr><th scope="col">topic</th>'
            '<th scope="col">taught on</th></tr></thead>'
            f"<tbody>{rows}</tbody></table></div>"
        )
    return "\n".join(parts)


def _row(app, here: str, number: str, topic: dict) -> str:
    links = ", ".join(
        f'<a href="{app.builder.get_relative_uri(here, page)}#block-{block}">'
        f"{escape(app.env.titles[page].astext())}</a>"
        for page, block in topic["pages"].items()
    )
    title, place = f"{number}. {escape(topic['title'])}", links or "–"
    cells = f'<th scope="row">{title}</th><td>{place}</td>'
    return f'<tr id="topic-{number}">{cells}</tr>'


def setup(app):
    app.add_directive("topics", Topics)
    app.connect("builder-inited", prepare)
    app.connect("env-purge-doc", purge)
    app.connect("doctree-read", find_blocks, priority=600)  # they have their numbers
    tables.add(app, "topic-coverage", collect, _html)
    return {"version": "1", "env_version": 4, "parallel_read_safe": False}

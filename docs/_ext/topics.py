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
from proof.evidence import write_json

logger = logging.getLogger(__name__)


class Topics(SphinxDirective):
    """``.. topics:: 25 26``: show nothing, note the numbers."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        self.env.topics_of_scripts[self.env.docname] = self.arguments[0]
        return []


def prepare(app) -> None:
    if not hasattr(app.env, "topics_of_scripts"):
        app.env.topics_of_scripts = {}


def purge(app, env, docname) -> None:
    env.topics_of_scripts.pop(docname, None)


def collect(app, env) -> dict[str, dict]:
    """Every topic with the pages that teach it; write coverage.json."""
    text = Path(app.srcdir, "topics.toml").read_text(encoding="utf-8")
    table = {
        number: {"area": area, "title": title, "pages": []}
        for area, topics in tomllib.loads(text).items()
        for number, title in topics.items()
    }
    for docname in sorted(env.all_docs):
        front_matter = env.metadata[docname].get("topics", "")
        named = env.topics_of_scripts.get(docname, front_matter)
        for number in re.findall(r"\d+", str(named)):
            if number in table:
                table[number]["pages"].append(docname)
            else:
                logger.warning("there is no topic %s", number, location=docname)
    data = {
        number: {"title": topic["title"], "pages": topic["pages"]}
        for number, topic in table.items()
    }
    write_json(Path(app.outdir, "coverage.json"), {"topics": data})
    return table


def _html(app, here: str, table: dict[str, dict]) -> str:
    done = sum(bool(topic["pages"]) for topic in table.values())
    json = "../" * here.count("/") + "coverage.json"
    parts = [
        f"<p>{done} of {len(table)} topics are taught by at least one page. "
        f'The same list for programs: <a href="{json}">coverage.json</a>.</p>'
    ]
    for area, topics in groupby(table.items(), lambda item: item[1]["area"]):
        rows = "".join(_row(app, here, number, topic) for number, topic in topics)
        parts.append(
            '<div class="pst-scrollable-table-container"><table class="table">'
            f"<caption>{escape(area)}</caption>"
            '<thead><tr><th scope="col">#</th><th scope="col">topic</th>'
            '<th scope="col">pages</th><th scope="col">taught on</th></tr></thead>'
            f"<tbody>{rows}</tbody></table></div>"
        )
    return "\n".join(parts)


def _row(app, here: str, number: str, topic: dict) -> str:
    links = ", ".join(
        f'<a href="{app.builder.get_relative_uri(here, page)}">'
        f"{escape(app.env.titles[page].astext())}</a>"
        for page in topic["pages"]
    )
    title, count = escape(topic["title"]), len(topic["pages"])
    cells = f"<td>{title}</td><td>{count}</td><td>{links or '–'}</td>"
    return f'<tr id="topic-{number}"><th scope="row">{number}</th>{cells}</tr>'


def setup(app):
    app.add_directive("topics", Topics)
    app.connect("builder-inited", prepare)
    app.connect("env-purge-doc", purge)
    tables.add(app, "topic-coverage", collect, _html)
    return {"version": "1", "env_version": 2, "parallel_read_safe": False}

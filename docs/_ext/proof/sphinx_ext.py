"""The Sphinx extension: claims when a page is read, origins and labels when written."""

from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

from . import evidence, gallery, ledger, on_gpu, tables, units
from .bars import Bars
from .directives import ProvenInclude, Recorded, RunBlock
from .files import ROOT, BuildError, relative, write_json
from .origins import Origin, resolve

logger = logging.getLogger(__name__)


def outdated_pages(app, env, added, changed, removed) -> list[str]:
    """Read a page again when the store has something else for it."""
    read = [name for name, known in env.metadata.items() if "shown" in known]
    return [name for name in read if env.metadata[name]["shown"] != shown(app, name)]


def shown(app, docname: str) -> str:
    """All that the store has for the blocks and recordings of a page."""
    path = Path(app.env.doc2path(docname))
    try:
        blocks = units.shown(path) if path.suffix == ".md" and path.exists() else ()
    except BuildError as error:
        logger.warning("%s", error, type="proof")
        return ""
    claims = app.env.metadata[docname]["claims"]
    names = {c["what"] for c in claims if c["how"] == "recorded"} | on_gpu.what(docname)
    records = [evidence.store().kept(what) for what in sorted(names)]
    return repr((blocks, records))


def collect(app, doctree) -> None:
    """Note what each code block of a page claims; the node keeps the number."""
    env = app.env
    claims = []
    for node in doctree.findall(_is_code):
        # Sphinx shows neither its own messages nor the forms that myst-nb drops.
        if isinstance(node.parent, nodes.system_message) or _is_unselected(node):
            continue
        claim = dict(node.attributes.pop("proof_claim", None) or _claim(app, node))
        claim["language"] = _language(node)
        claim["line"] = _line(node)
        node["proof"] = len(claims)
        node["ids"].append(f"block-{len(claims)}")
        claims.append(claim)
    known = env.metadata[env.docname]  # which Sphinx forgets with the page
    known["claims"] = claims
    known["shown"] = shown(app, env.docname)


def _is_code(node) -> bool:
    return isinstance(node, nodes.literal_block | nodes.doctest_block)


def _language(node) -> str:
    if isinstance(node, nodes.doctest_block):
        return "pycon"
    return node.get("language", "text").lower()


def _line(node) -> int:
    """The line of the page; in a notebook the number of the cell, from 1."""
    line = node.line or getattr(node.parent, "line", None) or 0
    return line // 10000 or line  # myst-nb counts 10000 for each cell


def _is_unselected(node) -> bool:
    """Whether myst-nb will show another form of this output, such as HTML."""
    form = next((n for n in _around(node) if "mime_type" in n.attributes), None)
    if form is None or form["mime_type"] != "text/plain":
        return False
    return any(c["mime_type"] != "text/plain" for c in form.parent.children)


def _around(node) -> Iterator[nodes.Element]:
    """The node and all that it stands in, from the inside out."""
    while node is not None:
        yield node
        node = node.parent


def _claim(app, node) -> dict:
    """How a block that carries no claim of its own can be proven."""
    what = units.record_of(app.env.docname)
    kind, _, source = what.partition(":")
    is_output = is_proven = "sphx-glr-script-out" in node["classes"]
    if kind == "script":
        shown = {line.strip() for line in node.astext().splitlines()} - {""}
        is_proven = is_output or shown <= gallery.code_lines(ROOT / source)
    elif part := _part_of_cell(node):
        is_output, is_proven = part == "cell_code_output", True
    elif kind == "page":
        path = app.env.doc2path(app.env.docname)
        source = relative(path) or Path(path).name
    how = "record" if is_proven else "nothing"
    return {"how": how, "source": source, "what": what, "output": is_output}


def _part_of_cell(node) -> str:
    """The part of a notebook's code cell that holds this block; "" on a page."""
    parts = (str(outer.get("nb_element")) for outer in _around(node))
    return next((part for part in parts if part.startswith("cell_code_")), "")


def resolve_all(app, env) -> list[str]:
    """Find all origins anew; write again the pages on which one has changed."""
    changed, complete = [], app.config.proof_complete
    for docname, claims in tables.claims(env).items():
        before = [claim.get("origin") for claim in claims]
        for claim in claims:
            origin = claim["origin"] = resolve(claim, complete)
            # An empty reason: another block of the page is to blame, and says so.
            if not origin.kind and origin.reason and not claim.get("output"):
                where = (docname, claim["line"] or None)
                logger.warning("%s", origin.reason, location=where, type="proof")
        if before != [claim["origin"] for claim in claims]:
            changed.append(docname)
    env.ledger = [name for name, known in env.metadata.items() if "ledger" in known]
    return changed


class Labels(SphinxPostTransform):
    """Put its origin under each block."""

    # sphinx-gallery replaces its blocks at 5, and drops their numbers and ids.
    default_priority = 3
    formats = ("html",)

    def run(self, **kwargs) -> None:
        docname = self.env.docname
        claims = self.env.metadata[docname]["claims"]
        for node in list(self.document.findall(_is_code)):
            if "proof" not in node:
                continue
            claim = claims[node["proof"]]
            node["classes"].append(f"proof-{claim['origin'].kind or 'unproven'}")
            wrapper = _outermost(node)
            place = wrapper.parent.index(wrapper)
            if not claim.get("output"):
                label = _label(self.app, docname, claim["origin"])
                wrapper.parent.insert(place + 1, label)
            if gallery.source_of(docname):
                wrapper.parent.insert(place, nodes.target(ids=node["ids"]))
                node["ids"] = []


def _outermost(node):
    """The block with its caption, so that the label comes below both."""
    parent = node.parent
    return parent if "literal-block-wrapper" in parent.get("classes", ()) else node


def _label(app, docname: str, origin: Origin) -> nodes.paragraph:
    label = nodes.paragraph(classes=["proof", f"proof-{origin.kind or 'unproven'}"])
    label += nodes.inline("", "Origin: ", classes=["proof-spoken"])
    text = nodes.inline("", origin.label)
    for page in app.env.ledger:
        uri = app.builder.get_relative_uri(docname, page)
        address = f"{uri}#{ledger.anchor(docname)}"
        text = nodes.reference("", origin.label, refuri=address, internal=True)
    label += text
    return label


def summarise(app, exception) -> None:
    """Write ledger.json; say what the origins of the page asked for are, or of all."""
    if exception:
        return
    data = ledger.collect(app.env)
    write_json(Path(app.outdir, "ledger.json"), data)
    rows = data["blocks"]
    if only := app.config.proof_page:
        rows = [row for row in rows if row["page"] == only]
        logger.info("proof: %s", only)
    for line in ledger.summary(rows):
        logger.info("proof: %s", line)


def setup(app):
    app.add_config_value("proof_complete", True, "env", types=(bool,))
    app.add_config_value("proof_page", "", "", types=(str,))
    app.add_css_file("proof.css")
    app.add_directive("run", RunBlock)
    app.add_directive("recorded", Recorded)
    app.add_directive("bars", Bars)
    app.add_directive("literalinclude", ProvenInclude, override=True)
    # Before sphinx-gallery writes its pages, at the default priority of 500.
    app.connect("builder-inited", gallery.replace, priority=100)
    app.connect("env-get-outdated", outdated_pages)
    app.connect("doctree-read", collect)
    # Before any extension asks for evidence, at the default priority of 500.
    app.connect("env-updated", resolve_all, priority=100)
    tables.add(app, "ledger", ledger.html)
    app.connect("build-finished", summarise)
    app.add_transform(on_gpu.Section)
    app.add_post_transform(Labels)
    return {"env_version": 7, "parallel_read_safe": False}

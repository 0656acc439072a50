"""The Sphinx extension: claims when a page is read, origins and labels when written."""

from pathlib import Path

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

from . import evidence, gallery, ledger, on_gpu, tables, units
from .directives import ProvenInclude, Recorded, RunBlock
from .files import relative
from .origins import Origin, resolve

logger = logging.getLogger(__name__)


def init_environment(app, env=None, docnames=None) -> None:
    """Make room for claims and origins, which are kept with the read pages."""
    if not hasattr(app.env, "proof"):
        app.env.proof = {"claims": {}, "origins": {}, "shown": {}}


def outdated_pages(app, env, added, changed, removed) -> list[str]:
    """Read a page again when the store has something else for it."""
    seen = env.proof["shown"]
    return [name for name in seen if seen[name] != shown(app, name)]


def shown(app, docname: str) -> str:
    """All that the store has for the blocks and recordings of a page."""
    path = Path(app.env.doc2path(docname))
    blocks = units.shown(path) if path.suffix == ".md" and path.exists() else ()
    claims = app.env.proof["claims"].get(docname, ())
    names = {c["what"] for c in claims if c["how"] == "recorded"} | on_gpu.what(docname)
    records = [evidence.store().kept(what) for what in sorted(names)]
    return repr((blocks, records))


def purge(app, env, docname) -> None:
    env.proof["claims"].pop(docname, None)
    env.proof["origins"].pop(docname, None)
    env.proof["shown"].pop(docname, None)


def collect(app, doctree) -> None:
    """Note what each code block of a page claims; the node keeps the number."""
    env = app.env
    classify = _classifier(app, env.docname)
    claims = []
    for node in doctree.findall(_is_code):
        # Sphinx shows neither its own messages nor the forms that myst-nb drops.
        if isinstance(node.parent, nodes.system_message) or _is_unselected(node):
            continue
        claim = dict(node.attributes.pop("proof_claim", None) or classify(node))
        claim["language"] = _language(node)
        claim["line"] = _line(node)
        node["proof"] = len(claims)
        node["ids"].append(f"block-{len(claims)}")
        claims.append(claim)
    env.proof["claims"][env.docname] = claims
    env.proof["shown"][env.docname] = shown(app, env.docname)


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
    form = node.parent
    while form is not None and "mime_type" not in form.attributes:
        form = form.parent
    if form is None or form["mime_type"] != "text/plain":
        return False
    return any(c["mime_type"] != "text/plain" for c in form.parent.children)


def _classifier(app, docname: str):
    """How the blocks of a page that carry no claim of their own can be proven."""
    path = Path(app.env.doc2path(docname))
    script = gallery.source_of(docname)
    lines = gallery.code_lines(script) if script else set()

    def classify(node) -> dict:
        if script:
            return _script_claim(node, script, lines)
        if cell := _cell(node):
            is_output = cell["nb_element"] == "cell_code_output"
            name = f"tutorials/{path.name}"
            return _claim("record", name, what=f"notebook:{name}", output=is_output)
        return _claim("nothing", relative(path) or path.name)

    return classify


def _claim(how: str, source: str, **more) -> dict:
    return {"how": how, "source": source} | more


def _script_claim(node, script: Path, lines: set[str]) -> dict:
    source = relative(script)
    is_output = "sphx-glr-script-out" in node["classes"]
    shown = (line.strip() for line in node.astext().splitlines())
    if not is_output and not lines.issuperset(filter(None, shown)):
        return _claim("nothing", source)
    return _claim("record", source, what=f"script:{source}", output=is_output)


def _cell(node):
    """The part of a notebook's code cell that holds this block."""
    while node is not None:
        if str(node.attributes.get("nb_element")).startswith("cell_code_"):
            return node
        node = node.parent
    return None


def resolve_all(app, env) -> list[str]:
    """Find all origins anew; write again the pages on which one has changed."""
    proof, changed = env.proof, []
    complete = app.config.proof_complete
    for docname, claims in proof["claims"].items():
        origins = [resolve(claim, complete) for claim in claims]
        for claim, origin in zip(claims, origins, strict=True):
            # An empty reason: another block of the page is to blame, and says so.
            if not origin.kind and origin.reason and not claim.get("output"):
                where = (docname, claim["line"] or None)
                logger.warning("%s", origin.reason, location=where, type="proof")
        if origins != proof["origins"].get(docname):
            proof["origins"][docname] = origins
            changed.append(docname)
    return changed


class Labels(SphinxPostTransform):
    """Put its origin under each block."""

    # sphinx-gallery replaces its blocks at 5, and drops their numbers and ids.
    default_priority = 3
    formats = ("html",)

    def run(self, **kwargs) -> None:
        docname = self.env.docname
        origins = self.env.proof["origins"].get(docname, [])
        claims = self.env.proof["claims"].get(docname, [])
        for node in list(self.document.findall(_is_code)):
            if (number := node.get("proof")) is None:
                continue
            node["classes"].append(f"proof-{origins[number].kind or 'unproven'}")
            wrapper = _outermost(node)
            place = wrapper.parent.index(wrapper)
            if not claims[number].get("output"):
                label = _label(self.app, docname, origins[number])
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
    for page in app.env.tables["ledger"]["pages"]:
        uri = app.builder.get_relative_uri(docname, page)
        address = f"{uri}#{ledger.anchor(docname)}"
        text = nodes.reference("", origin.label, refuri=address, internal=True)
    label += text
    return label


def summarise(app, exception) -> None:
    """Say what the blocks' origins are, of the page that was asked for or of all."""
    data = app.env.tables["ledger"]["data"] if exception is None else None
    if data and (only := app.config.proof_page):
        data = ledger.of_page(data, only)
        logger.info("proof: %s", only)
    for line in ledger.summary(data) if data else ():
        logger.info("proof: %s", line)


def setup(app):
    app.add_config_value("proof_complete", True, "env", types=(bool,))
    app.add_config_value("proof_page", "", "", types=(str,))
    app.add_css_file("proof.css")
    app.add_directive("run", RunBlock)
    app.add_directive("recorded", Recorded)
    app.add_directive("literalinclude", ProvenInclude, override=True)
    app.connect("builder-inited", init_environment)
    # Before sphinx-gallery writes its pages, at the default priority of 500.
    app.connect("builder-inited", gallery.replace, priority=100)
    app.connect("env-get-outdated", outdated_pages)
    app.connect("env-purge-doc", purge)
    app.connect("doctree-read", collect)
    # Before any extension asks for evidence, at the default priority of 500.
    app.connect("env-updated", resolve_all, priority=100)
    # After the origins are found.
    tables.add(app, "ledger", ledger.collect, ledger.html)
    app.connect("build-finished", summarise)
    app.add_transform(on_gpu.Section)
    app.add_post_transform(Labels)
    return {"version": "1", "env_version": 5, "parallel_read_safe": False}

"""The Sphinx extension: claims when a page is read, origins and labels when written."""

from pathlib import Path

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.display import status_iterator

from . import evidence, gallery, ledger, on_gpu, page, run, tables
from .directives import ProvenInclude, Recorded, RunBlock, executes
from .origins import Origin, is_current, resolve

logger = logging.getLogger(__name__)


def init_environment(app, env=None, docnames=None) -> None:
    """Make room for claims and origins, which are kept with the read pages."""
    if not hasattr(app.env, "proof"):
        app.env.proof = {"claims": {}, "origins": {}}


@evidence.at_rest()
def outdated_pages(app, env, added, changed, removed) -> list[str]:
    """Read a page again when its run is out of date, or a recording has come."""

    def is_outdated(docname: str, claims: list[dict]) -> bool:
        has_expired = executes(app.config, docname) and not all(map(is_current, claims))
        return has_expired or on_gpu.has_come(app, docname, claims)

    return [
        name
        for name, claims in env.proof["claims"].items()
        if is_outdated(name, claims)
    ]


def run_pages(app, env, docnames) -> None:
    """Run the pages that are about to be read, but not those that time something."""
    paths = [Path(env.doc2path(n)) for n in docnames if executes(app.config, n)]
    paths = [path for path in paths if path.suffix == ".md" and _can_run_early(path)]
    paths.sort(reverse=True)  # the longest runs are among the last: they begin first
    done = run.run_pages(paths)
    title, count = "running pages... ", len(paths)
    for _ in status_iterator(done, title, "brown", count, app.verbosity, page.name):
        pass


def _can_run_early(path: Path) -> bool:
    try:
        blocks = page.parse(path)
    except ValueError:  # which is reported where the page is read
        return False
    return bool(blocks) and not page.runs_alone(path) and not run.known_results(path)


def purge(app, env, docname) -> None:
    env.proof["claims"].pop(docname, None)
    env.proof["origins"].pop(docname, None)


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
    script = gallery.source_of(app, docname)
    data = getattr(app.env, "nb_metadata", {}).get(docname, {}).get("exec_data")
    lines = gallery.code_lines(script) if script else set()

    def classify(node) -> dict:
        if script:
            return _script_claim(node, script, lines)
        if cell := _cell(node):
            source = evidence.relative(on_gpu.original(path)) or path.name
            is_output = cell["nb_element"] == "cell_code_output"
            succeeded = bool(data and data["succeeded"])
            return _claim("notebook", source, succeeded=succeeded, output=is_output)
        if ":docstring of " in str(node.source):
            return _docstring_claim(app, docname, node.source.rpartition(" ")[2])
        return _claim("nothing", evidence.relative(path) or path.name)

    return classify


def _claim(how: str, source: str, **more) -> dict:
    return {"how": how, "source": source} | more


def _script_claim(node, script: Path, lines: set[str]) -> dict:
    source = evidence.relative(script)
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


def _docstring_claim(app, docname: str, name: str) -> dict:
    module = run.file_that_defines(name)  # not the one that exports it
    source = evidence.relative(module) or str(module)
    problem = run.run_doctest(module) if executes(app.config, docname) else ""
    return _claim("doctest", source, what=f"doctest:{source}", problem=problem)


@evidence.at_rest()
def resolve_all(app, env) -> list[str]:
    """Find all origins anew; write again the pages on which one has changed."""
    proof, changed = env.proof, []
    for docname, claims in proof["claims"].items():
        execute = executes(app.config, docname)
        origins = [resolve(claim, execute) for claim in claims]
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
            if gallery.source_of(self.app, docname):
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
    if page := app.env.tables["ledger"]["page"]:
        uri = app.builder.get_relative_uri(docname, page)
        address = f"{uri}#{ledger.anchor(docname)}"
        text = nodes.reference("", origin.label, refuri=address, internal=True)
    label += text
    return label


def prune(app, env) -> None:
    """Forget the records of what is gone: pages, their last block, scripts, modules."""
    for what in evidence.store().names():
        kind, _, name = what.partition(":")
        path = Path(f"docs/{name}.md") if kind == "page" else Path(name)
        is_ours = kind in ("page", "script", "doctest")
        claims = env.proof["claims"].get(name) if kind == "page" else None
        runs = claims is None or any(claim["how"] == "run" for claim in claims)
        if is_ours and not (runs and (evidence.ROOT / path).exists()):
            evidence.store().drop(what)


def summarise(app, exception) -> None:
    """Say what the blocks' origins are, and what this machine could not run and why."""
    data = app.env.tables["ledger"]["data"] if exception is None else None
    for line in ledger.summary(data) if data else ():
        logger.info("proof: %s", line)


def setup(app):
    app.add_config_value("proof_execute", True, "env", types=(bool, str))
    app.add_css_file("proof.css")
    app.add_directive("run", RunBlock)
    app.add_directive("recorded", Recorded)
    app.add_directive("literalinclude", ProvenInclude, override=True)
    app.connect("builder-inited", init_environment)
    # Before sphinx-gallery runs its scripts, at the default priority of 500.
    app.connect("builder-inited", gallery.isolate, priority=100)
    app.connect("env-get-outdated", outdated_pages)
    app.connect("env-purge-doc", purge)
    app.connect("env-before-read-docs", run_pages)
    app.connect("doctree-read", collect)
    # Before any extension asks for evidence, at the default priority of 500.
    app.connect("env-updated", prune, priority=100)
    app.connect("env-updated", resolve_all)
    # After the origins are found.
    tables.add(app, "ledger", ledger.collect, ledger.html)
    app.connect("build-finished", summarise)
    app.add_transform(on_gpu.Section)
    app.add_post_transform(Labels)
    # What a page times must not be disturbed by the run of another.
    return {"version": "1", "env_version": 2, "parallel_read_safe": False}

"""``api``: the reference of functions and classes, read from their sources.

Nothing is imported, so that a site can be laid out where PyTorch is not installed.
"""

import ast
import re
from pathlib import Path

from docutils import nodes
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.util.docutils import SphinxDirective

from proof.files import ROOT

OTHERS = ("torch", "collections.abc")  # whose types stand in signatures
DEFINED = ast.FunctionDef | ast.ClassDef


class Api(SphinxDirective):
    """Signatures and docstrings: ``api opbook.nn RMSNorm RMSNorm.forward``.

    The first argument is a module, the others are what it defines or imports. Without
    others, all of its ``__all__`` is shown.
    """

    required_arguments = 1
    optional_arguments = 100

    def run(self) -> list[nodes.Node]:
        module, *names = self.arguments
        shown = []
        for name in names or exported(module):
            try:
                path, tree, found = find(module, name)
            except (KeyError, OSError) as error:
                raise self.error(f"api: {module} has no {name}") from error
            self.env.note_dependency(str(path))
            lines = ["``````{eval-rst}", *entry(module, name, found, tree), "``````"]
            made = self.parse_text_to_nodes("\n".join(lines))
            source = path.relative_to(ROOT).as_posix()
            claim = {"how": "record", "source": source, "what": f"doctest:{source}"}
            for node in made:
                for block in node.findall(nodes.doctest_block):
                    block["proof_claim"] = claim
            shown += made
        return shown


def find(module: str, name: str) -> tuple[Path, ast.Module, DEFINED]:
    """What defines a name, in which file, also where the module only exports it."""
    path = file_of(module)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    outer, _, inner = name.partition(".")
    defined = {node.name: node for node in tree.body if isinstance(node, DEFINED)}
    if inner:
        methods = {n.name: n for n in defined[outer].body if isinstance(n, DEFINED)}
        return path, tree, methods[inner]
    if name in defined:
        return path, tree, defined[name]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and name in {a.name for a in node.names}:
            return find(node.module, name)
    raise KeyError(name)


def exported(module: str) -> list[str]:
    """What a module lists in ``__all__``."""
    text = file_of(module).read_text(encoding="utf-8")
    names = re.search(r"^__all__ = (\[.*?\])", text, re.DOTALL | re.MULTILINE)
    return ast.literal_eval(names[1])


def file_of(module: str) -> Path:
    """The file of a module of one of the packages."""
    folders = [ROOT / place for place in ("src", "tools/src")]
    parts = module.split(".")
    folder = next(f for f in folders if (f / parts[0]).is_dir())
    path = folder.joinpath(*parts)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def entry(module: str, name: str, found: DEFINED, tree: ast.Module):
    """The lines of reStructuredText for one function, class or method."""
    kind = "class" if isinstance(found, ast.ClassDef) else "function"
    kind = "method" if "." in name else kind
    signature = "" if kind == "class" else signature_of(found, tree, kind == "method")
    yield f".. py:{kind}:: {name}{signature}"
    yield f"   :module: {module}"
    yield ""
    text = ast.get_docstring(found) or ""
    config = Config(napoleon_numpy_docstring=False)
    for line in GoogleDocstring(text, config, what=kind).lines():
        yield f"   {line}".rstrip()
    yield ""


def signature_of(found: ast.FunctionDef, tree: ast.Module, is_method: bool) -> str:
    """The parameters, with the full names of the types that the module imports."""
    names = {}
    for node in ast.walk(tree):
        of_others = isinstance(node, ast.ImportFrom) and node.module in OTHERS
        for alias in node.names if of_others else ():
            names[alias.name] = f"{node.module}.{alias.name}"

    class Qualify(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.Name:
            return ast.Name(names.get(node.id, node.id), node.ctx)

    arguments = Qualify().visit(found.args)
    if is_method:
        arguments.args = arguments.args[1:]
    text = f"({ast.unparse(arguments)})"
    if found.returns:
        text += f" -> {ast.unparse(Qualify().visit(found.returns))}"
    return text


def setup(app):
    app.add_directive("api", Api)

"""Run source as an interactive Python does, with nothing else installed."""

import ast
import linecache


def parse(source: str, name: str) -> ast.Module:
    """Parse source, and keep its text under the name that stands for its file."""
    source = f"{source}\n"
    # Tracebacks and inspect.getsource, which triton.jit uses, find the text here.
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    return ast.parse(source, name)


def evaluate(tree: ast.Module, name: str, namespace: dict) -> object:
    """Run the statements; return the value of an expression at their end, or None."""
    *body, last = tree.body or [None]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, name, "exec"), namespace)
        return None
    exec(compile(ast.Module(body, tree.type_ignores), name, "exec"), namespace)
    return eval(compile(ast.Expression(last.value), name, "eval"), namespace)
